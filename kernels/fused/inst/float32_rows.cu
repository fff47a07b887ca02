#include "kernels/fused/row_launch.cuh"

namespace ridgeline::kernels::fused {

template cudaError_t LaunchRows<float>(const FusedParams& params, const CudaLimits& limits, cudaStream_t stream);

}  // namespace ridgeline::kernels::fused
