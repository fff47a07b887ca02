#include "kernels/attention/decode/decode_launch.cuh"

namespace ridgeline::kernels::attention {

template cudaError_t LaunchDecodeKernel<__nv_bfloat16, 64, 1, false>(const DecodeArguments& arguments, cudaStream_t stream);
template cudaError_t LaunchDecodeKernel<__nv_bfloat16, 64, 2, false>(const DecodeArguments& arguments, cudaStream_t stream);
template cudaError_t LaunchDecodeKernel<__nv_bfloat16, 64, 2, true>(const DecodeArguments& arguments, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
