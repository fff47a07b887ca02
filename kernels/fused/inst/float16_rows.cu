#include <cuda_fp16.h>

#include "kernels/fused/row_launch.cuh"

namespace ridgeline::kernels::fused {

template cudaError_t LaunchRows<__half>(const FusedParams& params, const CudaLimits& limits, cudaStream_t stream);

}  // namespace ridgeline::kernels::fused
