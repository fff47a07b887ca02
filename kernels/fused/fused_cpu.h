// fused.h's work on the CPU: on the calling thread and the executor's.
#pragma once

#include "kernels/common/executor.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/steps.h"

namespace ridgeline::kernels::fused {

void RunFusedOnCpu(const FusedParams& params, Mode mode, Executor& executor);

// Parts of it: fused operations that reduce rows, those that take elements one by one, rotary embeddings, and a step of the
// unfused chain.
void RunRowsOnCpu(const FusedParams& params, Executor& executor);
void RunPointwiseOnCpu(const FusedParams& params, Executor& executor);
void RunRopeOnCpu(const FusedParams& params, Executor& executor);
void RunStepOnCpu(const FusedParams& params, const Step& step, Executor& executor);

// Elements of one task: enough to pay for handing it out, few enough that a core's L2 cache holds a task's tensors.
inline constexpr std::int64_t kTaskElems = 32 << 10;

}  // namespace ridgeline::kernels::fused
