// The dispatch: runtime values to the combinations that are built, in one list.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/attention/prefill_sm90/prefill_cuda.h"
#include "kernels/attention/prefill_sm90/prefill_launch.h"
#include "kernels/attention/prefill_sm90/prefill_shape.h"

namespace ridgeline::kernels::attention {
namespace {

using Launcher = cudaError_t (*)(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream);

// Whether logits are more than products times a scale that leaves their order, and their size within reason.
bool HasLogitOptions(const AttentionParams& params) {
  constexpr float kLeastScale = 0x1p-60f;
  return params.logit_soft_cap > 0 || params.alibi_slopes != nullptr || params.bias != nullptr ||
         !(params.scale >= kLeastScale);
}

template <typename T>
Launcher FindPlain(int shape_idx) {
  switch (shape_idx) {
    case kPrefill64Long:
      return LaunchPrefillKernel<T, kPrefill64Long, false>;
    case kPrefill64:
      return LaunchPrefillKernel<T, kPrefill64, false>;
    case kPrefill64Small:
      return LaunchPrefillKernel<T, kPrefill64Small, false>;
    case kPrefill96:
      return LaunchPrefillKernel<T, kPrefill96, false>;
    case kPrefill128:
      return LaunchPrefillKernel<T, kPrefill128, false>;
    case kPrefill192To128:
      return LaunchPrefillKernel<T, kPrefill192To128, false>;
    case kPrefill192:
      return LaunchPrefillKernel<T, kPrefill192, false>;
    default:
      return LaunchPrefillKernel<T, kPrefill256, false>;
  }
}

template <typename T>
Launcher FindWithOptions(int shape_idx) {
  switch (shape_idx) {
    case kPrefill64Long:
      return LaunchPrefillKernel<T, kPrefill64Long, true>;
    case kPrefill64:
      return LaunchPrefillKernel<T, kPrefill64, true>;
    case kPrefill64Small:
      return LaunchPrefillKernel<T, kPrefill64Small, true>;
    case kPrefill96:
      return LaunchPrefillKernel<T, kPrefill96, true>;
    case kPrefill128:
      return LaunchPrefillKernel<T, kPrefill128, true>;
    case kPrefill192To128:
      return LaunchPrefillKernel<T, kPrefill192To128, true>;
    case kPrefill192:
      return LaunchPrefillKernel<T, kPrefill192, true>;
    default:
      return LaunchPrefillKernel<T, kPrefill256, true>;
  }
}

template <typename T>
Launcher Find(int shape_idx, bool has_logit_options) {
  return has_logit_options ? FindWithOptions<T>(shape_idx) : FindPlain<T>(shape_idx);
}

}  // namespace

cudaError_t LaunchPrefill(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream) {
  const bool has_logit_options = HasLogitOptions(params);
  const Launcher launch = params.shape.data_type == DataType::kFloat16
                              ? Find<__half>(plan.prefill.shape_idx, has_logit_options)
                              : Find<__nv_bfloat16>(plan.prefill.shape_idx, has_logit_options);
  return launch(plan, params, stream);
}

}  // namespace ridgeline::kernels::attention
