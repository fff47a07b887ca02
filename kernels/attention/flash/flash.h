// Flash attention: the keys are walked in cache-sized blocks with an online softmax, so S never exists as a whole and the
// workspace is O(N). Dao et al., "FlashAttention" (2022); splitting of keys: "Flash-Decoding" (2023). README.md has the
// schedule.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/common/executor.h"

namespace ridgeline::kernels::attention {

// Fills query_block, key_block, key_splits, kernel and workspace_bytes of `plan`.
void PlanFlashOnCpu(const AttentionShape& shape, const Sequence* sequences, const CpuLimits& limits, AttentionPlan& plan);

// Runs on the calling thread and the executor's. params.workspace holds plan.workspace_bytes.
void RunFlashOnCpu(const AttentionPlan& plan, const AttentionParams& params, Executor& executor);

}  // namespace ridgeline::kernels::attention
