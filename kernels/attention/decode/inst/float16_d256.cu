#include "kernels/attention/decode/decode_launch.cuh"

namespace ridgeline::kernels::attention {

template cudaError_t LaunchDecodeKernel<__half, 256, 1, false>(const DecodeArguments& arguments, cudaStream_t stream);
template cudaError_t LaunchDecodeKernel<__half, 256, 2, false>(const DecodeArguments& arguments, cudaStream_t stream);
template cudaError_t LaunchDecodeKernel<__half, 256, 2, true>(const DecodeArguments& arguments, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
