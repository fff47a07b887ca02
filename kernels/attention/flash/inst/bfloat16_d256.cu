#include "kernels/attention/flash/mma_launch.cuh"

namespace ridgeline::kernels::attention {

template cudaError_t LaunchMma<__nv_bfloat16, 256, false>(const FlashArguments& arguments, cudaStream_t stream);
template cudaError_t LaunchMma<__nv_bfloat16, 256, true>(const FlashArguments& arguments, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
