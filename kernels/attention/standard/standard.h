// Standard attention, as in the textbook: S = scale * Q·Kᵀ written to memory, softmax over its rows, P·V. README.md has the
// details.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/common/executor.h"

namespace ridgeline::kernels::attention {

// Bytes of S (float32, every sequence and query head) and of float32 copies of 16-bit inputs, and of keys and values in pages.
// Saturates at INT64_MAX.
std::int64_t StandardWorkspaceBytes(const AttentionShape& shape, const Sequence* sequences);

// Runs on the calling thread and the executor's. params.workspace holds StandardWorkspaceBytes.
void RunStandardOnCpu(const AttentionPlan& plan, const AttentionParams& params, Executor& executor);

}  // namespace ridgeline::kernels::attention
