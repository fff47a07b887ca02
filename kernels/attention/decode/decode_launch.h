// Launches of the decode kernel, one function for each combination that is built; each is instantiated in a file of inst/.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention/decode/decode_arguments.h"

namespace ridgeline::kernels::attention {

// T: __half or __nv_bfloat16. kHeadDim: one of kDecodeHeadDims. kRowMmas, kHasOptions: see DecodeTraits.
template <typename T, int kHeadDim, int kRowMmas, bool kHasOptions>
cudaError_t LaunchDecodeKernel(const DecodeArguments& arguments, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
