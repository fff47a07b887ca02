#include "tests/unit/kernels/attention_runner.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/flash/flash.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/standard/standard.h"
#include "kernels/common/executor.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_tolerance.h"
#include "tests/support/guarded_buffer.h"

namespace ridgeline::kernels::attention {

AttentionPlan Plan(Algorithm algorithm, const AttentionParams& params, int num_slots) {
  return PlanOnCpu(params.shape, params.sequences, algorithm, CpuLimits{.num_slots = num_slots});
}

::testing::AssertionResult RunKernel(const AttentionPlan& plan, AttentionParams params, Executor& executor) {
  const support::GuardedBuffer workspace(plan.workspace_bytes);
  params.workspace = plan.workspace_bytes > 0 ? workspace.data() : nullptr;
  if (plan.algorithm == Algorithm::kStandard) {
    RunStandardOnCpu(plan, params, executor);
  } else {
    RunFlashOnCpu(plan, params, executor);
  }
  if (workspace.guards_whole()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << plan.kernel << ": wrote past its workspace of " << plan.workspace_bytes << " bytes";
}

::testing::AssertionResult RunKernel(Algorithm algorithm, const AttentionParams& params, Executor& executor) {
  return RunKernel(Plan(algorithm, params, executor.num_slots()), params, executor);
}

::testing::AssertionResult IsRight(Algorithm algorithm, support::AttentionCase& attention_case, Executor& executor) {
  const AttentionParams params = attention_case.params();
  const AttentionPlan plan = Plan(algorithm, params, executor.num_slots());
  ::testing::AssertionResult result = RunKernel(plan, params, executor);
  if (result) result = attention_case.RunWasClean();
  if (result) result = attention_case.AnswerIsRight();
  if (!result) result << " [" << plan.kernel << "]";
  return result;
}

std::vector<double> AnswerOf(support::AttentionCase& attention_case) {
  std::vector<double> answer;
  for (const support::TestTensor* tensor : {&attention_case.output(), &attention_case.log_sum_exp()}) {
    for (std::int64_t i = 0; i < tensor->elements(); ++i) answer.push_back(tensor->Get(i));
  }
  return answer;
}

std::vector<double> DifferenceBound(support::AttentionCase& attention_case) {
  const support::AttentionBound bound = support::BoundErrors(attention_case.params(), attention_case.expected());
  std::vector<double> difference = bound.output;
  difference.insert(difference.end(), bound.log_sum_exp.begin(), bound.log_sum_exp.end());
  for (double& element : difference) element *= 2;
  return difference;
}

}  // namespace ridgeline::kernels::attention
