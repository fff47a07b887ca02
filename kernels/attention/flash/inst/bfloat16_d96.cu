#include "kernels/attention/flash/mma_launch.cuh"

namespace ridgeline::kernels::attention {

template cudaError_t LaunchMma<__nv_bfloat16, 96, MmaVariant::kPlain>(const FlashArguments& arguments, cudaStream_t stream);
template cudaError_t LaunchMma<__nv_bfloat16, 96, MmaVariant::kPaged>(const FlashArguments& arguments, cudaStream_t stream);
template cudaError_t LaunchMma<__nv_bfloat16, 96, MmaVariant::kGeneral>(const FlashArguments& arguments, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
