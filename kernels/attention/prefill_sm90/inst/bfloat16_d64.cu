#include "kernels/attention/prefill_sm90/prefill_launch.cuh"

namespace ridgeline::kernels::attention {

template cudaError_t LaunchPrefillKernel<__nv_bfloat16, kPrefill64Long, false>(const AttentionPlan& plan,
                                                                               const AttentionParams& params,
                                                                               cudaStream_t stream);
template cudaError_t LaunchPrefillKernel<__nv_bfloat16, kPrefill64Long, true>(const AttentionPlan& plan,
                                                                              const AttentionParams& params,
                                                                              cudaStream_t stream);
template cudaError_t LaunchPrefillKernel<__nv_bfloat16, kPrefill64Short, false>(const AttentionPlan& plan,
                                                                                const AttentionParams& params,
                                                                                cudaStream_t stream);
template cudaError_t LaunchPrefillKernel<__nv_bfloat16, kPrefill64Short, true>(const AttentionPlan& plan,
                                                                               const AttentionParams& params,
                                                                               cudaStream_t stream);
template cudaError_t LaunchPrefillKernel<__nv_bfloat16, kPrefill64ShortCausal, false>(const AttentionPlan& plan,
                                                                                      const AttentionParams& params,
                                                                                      cudaStream_t stream);
template cudaError_t LaunchPrefillKernel<__nv_bfloat16, kPrefill64ShortCausal, true>(const AttentionPlan& plan,
                                                                                     const AttentionParams& params,
                                                                                     cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
