// The CPU device's kernels under an executor of the test's choice.
#pragma once

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/common/executor.h"

namespace ridgeline::kernels::attention {

// The plan for a problem on a CPU with that many slots and otherwise default limits.
AttentionPlan PlanForSlots(Algorithm algorithm, const AttentionParams& params, int num_slots);

// RunKernel of attention_runner.h on that executor.
::testing::AssertionResult RunKernelOn(Executor& executor, const AttentionPlan& plan, AttentionParams params);

}  // namespace ridgeline::kernels::attention
