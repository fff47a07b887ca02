// Runs the CPU device's attention kernels on test cases.
#pragma once

#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/common/executor.h"
#include "tests/support/attention_case.h"

namespace ridgeline::kernels::attention {

inline constexpr Algorithm kAlgorithms[] = {Algorithm::kStandard, Algorithm::kFlash};

// The plan for a problem on a CPU with that many slots and otherwise default limits.
AttentionPlan Plan(Algorithm algorithm, const AttentionParams& params, int num_slots);

// Runs exactly what `plan` says, in a workspace of exactly its size, full of NaN. Fails if the guards around it are broken.
::testing::AssertionResult RunKernel(const AttentionPlan& plan, AttentionParams params, Executor& executor);
::testing::AssertionResult RunKernel(Algorithm algorithm, const AttentionParams& params, Executor& executor);

// Runs the case and judges everything that it can judge: answer, guards, inputs.
::testing::AssertionResult IsRight(Algorithm algorithm, support::AttentionCase& attention_case, Executor& executor);

// The case's output and log_sum_exp after a run, widened; output first.
std::vector<double> AnswerOf(support::AttentionCase& attention_case);

// What two right answers of the case may differ by, in the order of AnswerOf.
std::vector<double> DifferenceBound(support::AttentionCase& attention_case);

}  // namespace ridgeline::kernels::attention
