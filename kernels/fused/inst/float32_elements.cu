#include "kernels/fused/pointwise_launch.cuh"
#include "kernels/fused/rope_launch.cuh"
#include "kernels/fused/step_launch.cuh"

namespace ridgeline::kernels::fused {

template cudaError_t LaunchPointwise<float>(const FusedParams& params, cudaStream_t stream);
template cudaError_t LaunchRope<float>(const FusedParams& params, cudaStream_t stream);
template cudaError_t LaunchTypedStep<float>(const FusedParams& params, const Step& step, cudaStream_t stream);

}  // namespace ridgeline::kernels::fused
