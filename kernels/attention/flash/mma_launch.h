// Launches of the mma kernel, one function for each combination that is built; each is instantiated in a file of inst/.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention/flash/flash_arguments.h"

namespace ridgeline::kernels::attention {

enum class MmaVariant {
  kPlain,    // no logit options, contiguous keys
  kPaged,    // no logit options, keys in pages
  kGeneral,  // any options, any keys
};

// T: __half or __nv_bfloat16. kHeadDim: one of kMmaHeadDims.
template <typename T, int kHeadDim, MmaVariant kVariant>
cudaError_t LaunchMma(const FlashArguments& arguments, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
