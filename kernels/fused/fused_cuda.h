// fused.h's work on CUDA devices, queued on the stream.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/fused/fused.h"
#include "kernels/fused/row_schedule.h"

namespace ridgeline::kernels::fused {

// kFused: one launch. kUnfused: one each step, through params.workspace.
cudaError_t LaunchFused(const FusedParams& params, Mode mode, const CudaLimits& limits, cudaStream_t stream);

}  // namespace ridgeline::kernels::fused
