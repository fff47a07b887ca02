// Launches of the Hopper prefill kernel, one function for each combination that is built; each is instantiated in a file of
// inst/.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention/plan.h"
#include "kernels/attention/prefill_sm90/prefill_shape.h"

namespace ridgeline::kernels::attention {

// T: __half or __nv_bfloat16. kShapeIdx: of kPrefillShapes.
template <typename T, int kShapeIdx, LogitOption kOption>
cudaError_t LaunchPrefillKernel(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
