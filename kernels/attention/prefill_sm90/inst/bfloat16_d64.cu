#include "kernels/attention/prefill_sm90/prefill_launch.cuh"

namespace ridgeline::kernels::attention {

template cudaError_t LaunchPrefillKernel<__nv_bfloat16, kPrefill64Long, false>(const AttentionPlan& plan,
                                                                               const AttentionParams& params,
                                                                               cudaStream_t stream);
template cudaError_t LaunchPrefillKernel<__nv_bfloat16, kPrefill64Long, true>(const AttentionPlan& plan,
                                                                              const AttentionParams& params,
                                                                              cudaStream_t stream);
template cudaError_t LaunchPrefillKernel<__nv_bfloat16, kPrefill64, false>(const AttentionPlan& plan,
                                                                           const AttentionParams& params, cudaStream_t stream);
template cudaError_t LaunchPrefillKernel<__nv_bfloat16, kPrefill64, true>(const AttentionPlan& plan,
                                                                          const AttentionParams& params, cudaStream_t stream);
template cudaError_t LaunchPrefillKernel<__nv_bfloat16, kPrefill64Small, false>(const AttentionPlan& plan,
                                                                                const AttentionParams& params,
                                                                                cudaStream_t stream);
template cudaError_t LaunchPrefillKernel<__nv_bfloat16, kPrefill64Small, true>(const AttentionPlan& plan,
                                                                               const AttentionParams& params,
                                                                               cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
