#include "kernels/attention/prefill_sm90/prefill_launch.cuh"

namespace ridgeline::kernels::attention {

template cudaError_t LaunchPrefillKernel<__nv_bfloat16, kPrefill256, false>(const AttentionPlan& plan,
                                                                            const AttentionParams& params, cudaStream_t stream);
template cudaError_t LaunchPrefillKernel<__nv_bfloat16, kPrefill256, true>(const AttentionPlan& plan,
                                                                           const AttentionParams& params, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
