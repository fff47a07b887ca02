#include <cmath>
#include <cstdint>

#include "kernels/attention/cascade/cascade.h"
#include "kernels/attention/cascade/cascade_cuda.h"
#include "kernels/attention/decode/decode_cuda.h"
#include "kernels/attention/flash/flash_cuda.h"
#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/float16.cuh"

namespace ridgeline::kernels::attention {
namespace {

constexpr int kWarps = 8;  // of a block; each merges the rows of one head

struct MergeArguments {
  AttentionParams params;
  CascadePart parts[kCascadePasses];
  std::int64_t query_tokens;
};

// One warp. A pass that saw no key has log-sum-exp -inf; its output is not read.
template <typename Out>
__device__ void MergeRow(const MergeArguments& arguments, std::int64_t token, std::int64_t head, float sink_logit,
                         float* log_sum_exp) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const AttentionParams& params = arguments.params;
  float lse[kCascadePasses];
  float maximum = sink_logit;
#pragma unroll
  for (int pass = 0; pass < kCascadePasses; ++pass) {
    lse[pass] = arguments.parts[pass].log_sum_exp[head * arguments.query_tokens + token];
    maximum = fmaxf(maximum, lse[pass]);
  }
  float sum = sink_logit == -INFINITY ? 0.0f : expf(sink_logit - maximum);
#pragma unroll
  for (int pass = 0; pass < kCascadePasses; ++pass) {
    if (lse[pass] != -INFINITY) sum += expf(lse[pass] - maximum);
  }
  const float merged = sum == 0 ? -INFINITY : maximum + logf(sum);
  if (lane == 0 && log_sum_exp != nullptr) *log_sum_exp = merged;

  const int columns = static_cast<int>(params.shape.value_head_dim);
  const std::int64_t row_begin = (token * params.shape.query_heads + head) * columns;
  for (int column = lane; column < columns; column += 32) {
    float output = 0;
#pragma unroll
    for (int pass = 0; pass < kCascadePasses; ++pass) {
      if (lse[pass] != -INFINITY) output += expf(lse[pass] - merged) * arguments.parts[pass].output[row_begin + column];
    }
    static_cast<Out*>(params.output)[row_begin + column] = FromFloat<Out>(output);
  }
}

// A block: one sequence, kWarps heads.
template <typename Out>
__global__ void __launch_bounds__(32 * kWarps) MergeKernel(const __grid_constant__ MergeArguments arguments) {
  const AttentionParams& params = arguments.params;
  const Sequence sequence = params.sequences[blockIdx.x];
  const std::int64_t head = std::int64_t{blockIdx.y} * kWarps + threadIdx.x / 32;
  if (head >= params.shape.query_heads) return;
  const float sink_logit = params.sink_logits == nullptr ? -INFINITY : params.sink_logits[head];
  for (std::int64_t query = 0; query < sequence.query_tokens; ++query) {
    float* const log_sum_exp = params.log_sum_exp == nullptr
                                   ? nullptr
                                   : params.log_sum_exp + sequence.lse_begin + head * params.lse_head_stride_elems + query;
    MergeRow<Out>(arguments, sequence.query_begin + query, head, sink_logit, log_sum_exp);
  }
}

cudaError_t MergePasses(const CascadePlan& plan, const AttentionParams& params, cudaStream_t stream) {
  MergeArguments arguments = {.params = params, .query_tokens = plan.query_tokens};
  for (int pass = 0; pass < kCascadePasses; ++pass) arguments.parts[pass] = CascadePartOf(plan, params, pass);
  const auto head_blocks = static_cast<unsigned>((params.shape.query_heads + kWarps - 1) / kWarps);
  const LaunchShape launch = {.grid = dim3(static_cast<unsigned>(params.shape.num_sequences), head_blocks),
                              .block = dim3(32 * kWarps)};
  switch (params.shape.output_data_type) {
    case DataType::kFloat16:
      return Launch(MergeKernel<__half>, launch, stream, arguments);
    case DataType::kBFloat16:
      return Launch(MergeKernel<__nv_bfloat16>, launch, stream, arguments);
    default:
      return Launch(MergeKernel<float>, launch, stream, arguments);
  }
}

cudaError_t LaunchPass(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream) {
  return plan.decode.num_blocks > 0 ? LaunchDecode(plan, params, stream) : LaunchFlash(plan, params, stream);
}

}  // namespace

cudaError_t LaunchCascade(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream) {
  const CascadePlan& cascade = *plan.cascade;
  for (int pass = 0; pass < kCascadePasses; ++pass) {
    const cudaError_t launched = LaunchPass(cascade.passes[pass], CascadePassParams(cascade, params, pass), stream);
    if (launched != cudaSuccess) return launched;
  }
  return MergePasses(cascade, params, stream);
}

}  // namespace ridgeline::kernels::attention
