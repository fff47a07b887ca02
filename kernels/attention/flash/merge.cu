#include <cmath>
#include <cstdint>

#include "kernels/attention/flash/find_tile.cuh"
#include "kernels/attention/flash/merge.h"
#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/float16.cuh"

namespace ridgeline::kernels::attention {
namespace {

constexpr int kWarps = kMergeTileRows;  // of a block; each merges one row
constexpr int kMaxHeadDim = 256;

// One warp. A split that saw no key has log-sum-exp -inf; its output is not read.
template <typename Out>
__device__ void MergeRow(const FlashArguments& arguments, std::int64_t row, float* log_sum_exp, float sink_logit) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int splits = arguments.schedule.key_splits;
  const auto lse_of = [&](int split) { return arguments.partial_log_sum_exp[split * arguments.partial_rows + row]; };
  float maximum = sink_logit;
  for (int split = 0; split < splits; ++split) maximum = fmaxf(maximum, lse_of(split));
  float sum = sink_logit == -INFINITY ? 0.0f : expf(sink_logit - maximum);
  for (int split = 0; split < splits; ++split) {
    const float lse = lse_of(split);
    if (lse != -INFINITY) sum += expf(lse - maximum);
  }
  const float merged = sum == 0 ? -INFINITY : maximum + logf(sum);
  if (lane == 0 && log_sum_exp != nullptr) *log_sum_exp = merged;

  const int columns = static_cast<int>(arguments.params.shape.value_head_dim);
  float output[kMaxHeadDim / 32] = {};
  for (int split = 0; split < splits; ++split) {
    const float lse = lse_of(split);
    if (lse == -INFINITY) continue;
    const float weight = expf(lse - merged);
    const float* const part = arguments.partial_output + (split * arguments.partial_rows + row) * columns;
#pragma unroll
    for (int i = 0; i < kMaxHeadDim / 32; ++i) {
      if (lane + 32 * i < columns) output[i] += weight * part[lane + 32 * i];
    }
  }
  Out* const destination = static_cast<Out*>(arguments.params.output) + row * columns;
#pragma unroll
  for (int i = 0; i < kMaxHeadDim / 32; ++i) {
    if (lane + 32 * i < columns) destination[lane + 32 * i] = FromFloat<Out>(output[i]);
  }
}

// One block: kWarps rows of one sequence, where a row is (query, head).
template <typename Out>
__global__ void __launch_bounds__(32 * kWarps) MergeKernel(const __grid_constant__ FlashArguments arguments) {
  const AttentionParams& params = arguments.params;
  const TileSchedule& rows = arguments.merge_schedule;
  const Tile tile = FindTile(rows, params.sequences, blockIdx.x);
  const Sequence sequence = params.sequences[tile.sequence_idx];
  const std::int64_t row = std::int64_t{tile.tile} * kWarps + threadIdx.x / 32;
  if (row >= rows.NumRows(sequence.query_tokens)) return;
  const std::int64_t query_idx = row / params.shape.query_heads, head = row % params.shape.query_heads;
  float* const log_sum_exp = params.log_sum_exp == nullptr
                                 ? nullptr
                                 : params.log_sum_exp + sequence.lse_begin + head * params.lse_head_stride_elems + query_idx;
  const float sink_logit = params.sink_logits == nullptr ? -INFINITY : params.sink_logits[head];
  MergeRow<Out>(arguments, sequence.query_begin * params.shape.query_heads + row, log_sum_exp, sink_logit);
}

}  // namespace

cudaError_t LaunchMerge(const FlashArguments& arguments, cudaStream_t stream) {
  const LaunchShape launch = {.grid = dim3(static_cast<unsigned>(arguments.merge_schedule.NumBlocks())),
                              .block = dim3(32 * kWarps)};
  switch (arguments.params.shape.output_data_type) {
    case DataType::kFloat16:
      return Launch(MergeKernel<__half>, launch, stream, arguments);
    case DataType::kBFloat16:
      return Launch(MergeKernel<__nv_bfloat16>, launch, stream, arguments);
    default:
      return Launch(MergeKernel<float>, launch, stream, arguments);
  }
}

}  // namespace ridgeline::kernels::attention
