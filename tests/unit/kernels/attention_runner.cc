#include "tests/unit/kernels/attention_runner.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_tolerance.h"

namespace ridgeline::kernels::attention {

std::string WhyNot(Algorithm algorithm, const AttentionParams& params) {
  const AttentionPlan plan = Plan(algorithm, params);
  if (plan.workspace_bytes < std::numeric_limits<std::int64_t>::max()) return "";
  return plan.kernel + " does not compute this problem";
}

::testing::AssertionResult RunKernel(Algorithm algorithm, const AttentionParams& params) {
  return RunKernel(Plan(algorithm, params), params);
}

::testing::AssertionResult IsRight(Algorithm algorithm, support::AttentionCase& attention_case) {
  const AttentionParams params = attention_case.params();
  const AttentionPlan plan = Plan(algorithm, params);
  ::testing::AssertionResult result = RunKernel(plan, params);
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
  const support::AttentionBound bound = support::BoundErrors(attention_case.dense_params(), attention_case.expected());
  std::vector<double> difference = bound.output;
  difference.insert(difference.end(), bound.log_sum_exp.begin(), bound.log_sum_exp.end());
  for (double& element : difference) element *= 2;
  return difference;
}

}  // namespace ridgeline::kernels::attention
