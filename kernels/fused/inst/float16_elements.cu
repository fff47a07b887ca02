#include <cuda_fp16.h>

#include "kernels/fused/pointwise_launch.cuh"
#include "kernels/fused/rope_launch.cuh"
#include "kernels/fused/step_launch.cuh"

namespace ridgeline::kernels::fused {

template cudaError_t LaunchPointwise<__half>(const FusedParams& params, cudaStream_t stream);
template cudaError_t LaunchRope<__half>(const FusedParams& params, cudaStream_t stream);
template cudaError_t LaunchTypedStep<__half>(const FusedParams& params, const Step& step, cudaStream_t stream);

}  // namespace ridgeline::kernels::fused
