// Cascades on CUDA devices: both passes, by whichever kernels their plans say, and the merge.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"

namespace ridgeline::kernels::attention {

// Queues what a plan with a cascade says on `stream`. The passes have params.merge_workspace one after the other.
cudaError_t LaunchCascade(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
