// Launches of the Hopper prefill kernel, one function for each combination that is built; each is instantiated in a file of
// inst/.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention/plan.h"

namespace ridgeline::kernels::attention {

// T: __half or __nv_bfloat16. kShapeIdx: of kPrefillShapes. kHasLogitOptions: soft cap, ALiBi, bias and any scale.
template <typename T, int kShapeIdx, bool kHasLogitOptions>
cudaError_t LaunchPrefillKernel(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
