// Flash attention on CUDA devices. See flash.h for what it computes, README.md for the kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"

namespace ridgeline::kernels::attention {

// Queues the kernels of a plan of PlanOnCuda on `stream`. params.workspace holds plan.workspace_bytes.
cudaError_t LaunchFlash(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
