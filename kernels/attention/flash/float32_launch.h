// Launches of the float32 kernel, one function for each head_dim that is built.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention/flash/flash_arguments.h"

namespace ridgeline::kernels::attention {

// kHeadDim: as Float32HeadDim says.
template <int kHeadDim>
cudaError_t LaunchFloat32(const FlashArguments& arguments, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
