#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/attention/decode/decode_cuda.h"
#include "kernels/attention/decode/decode_launch.h"
#include "kernels/attention/decode/decode_shape.h"

namespace ridgeline::kernels::attention {
namespace {

using Launcher = cudaError_t (*)(const DecodeArguments& arguments, cudaStream_t stream);

// Options are rare: one kernel of 16 rows has them.
template <typename T, int kHeadDim>
Launcher FindRows(const DecodeSchedule& schedule, bool has_options) {
  if (has_options) return LaunchDecodeKernel<T, kHeadDim, 2, true>;
  return schedule.rows <= kDecodeRowMma ? LaunchDecodeKernel<T, kHeadDim, 1, false> : LaunchDecodeKernel<T, kHeadDim, 2, false>;
}

template <typename T>
Launcher FindHeadDim(const DecodeSchedule& schedule, bool has_options) {
  switch (schedule.head_dim) {
    case 64:
      return FindRows<T, 64>(schedule, has_options);
    case 80:
      return FindRows<T, 80>(schedule, has_options);
    case 96:
      return FindRows<T, 96>(schedule, has_options);
    case 128:
      return FindRows<T, 128>(schedule, has_options);
    default:
      return FindRows<T, 256>(schedule, has_options);
  }
}

}  // namespace

cudaError_t LaunchDecode(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream) {
  const bool has_options = plan.decode.hides_keys || params.logit_soft_cap > 0 || params.alibi_slopes != nullptr ||
                           params.bias != nullptr || !(params.scale > 0);
  const Launcher launch = params.shape.data_type == DataType::kFloat16 ? FindHeadDim<__half>(plan.decode, has_options)
                                                                       : FindHeadDim<__nv_bfloat16>(plan.decode, has_options);
  return launch({.params = params, .schedule = plan.decode}, stream);
}

}  // namespace ridgeline::kernels::attention
