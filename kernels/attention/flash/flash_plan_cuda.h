// The plan of flash attention on CUDA devices. Pure host code.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"

namespace ridgeline::kernels::attention {

// Fills query_block, key_block, key_splits, kernel, workspace_bytes and the tiles of `plan`. A problem with more tokens in a
// sequence, or more blocks, than the kernels count gets workspace_bytes of INT64_MAX and no tiles: nothing grants it.
void PlanFlashOnCuda(const AttentionShape& shape, const Sequence* sequences, const CudaLimits& limits, AttentionPlan& plan);

}  // namespace ridgeline::kernels::attention
