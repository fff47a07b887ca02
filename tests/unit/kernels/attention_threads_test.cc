// What must hold for any number of the CPU's threads, and for a kernel that they abandon.
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/common/data_type.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"
#include "tests/support/thread_executor.h"
#include "tests/unit/kernels/attention_runner.h"
#include "tests/unit/kernels/attention_runner_cpu.h"

namespace ridgeline::kernels::attention {
namespace {

using support::AttentionCase;
using support::AttentionOptions;
using support::AttentionProblem;
using support::DenseProblem;
using support::DeriveSeed;

class AttentionThreadsTest : public ::testing::TestWithParam<std::tuple<Algorithm, DataType>> {
 protected:
  Algorithm algorithm() const { return std::get<0>(GetParam()); }
  DataType type() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(All, AttentionThreadsTest,
                         ::testing::Combine(::testing::ValuesIn(kAlgorithms), ::testing::ValuesIn(support::kAttentionTypes)),
                         [](const auto& param) {
                           return std::string(Name(std::get<0>(param.param))) + "_" + Name(std::get<1>(param.param));
                         });

// One plan, carried out by one thread or by several, gives the same bytes: who computes a block does not matter.
TEST_P(AttentionThreadsTest, NumberOfThreadsDoesNotMatterToAPlan) {
  AttentionOptions causal;
  causal.causal = true;
  for (const AttentionProblem& problem : {DenseProblem(2, 70, 131, 6, 2, 64, 64), DenseProblem(1, 1, 3000, 4, 1, 64, 64)}) {
    AttentionCase attention_case(problem, causal, type(), DeriveSeed("threads"));
    const AttentionPlan plan = PlanForSlots(algorithm(), attention_case.params(), /*num_slots=*/8);
    std::vector<double> with_eight;
    for (const int num_slots : {8, 3, 1}) {
      support::ThreadExecutor executor(num_slots);
      ASSERT_TRUE(RunKernelOn(executor, plan, attention_case.params()));
      if (num_slots == 8) with_eight = AnswerOf(attention_case);
      EXPECT_EQ(AnswerOf(attention_case), with_eight) << num_slots << " of 8 slots: " << attention_case.name();
    }
  }
}

// Whoever gave up gets no result, but the kernel comes back, in bounds, wherever it was.
TEST_P(AttentionThreadsTest, CancelledKernelReturns) {
  for (const AttentionProblem& problem : {DenseProblem(2, 130, 300, 4, 2, 32, 32), DenseProblem(1, 1, 3000, 2, 1, 64, 64)}) {
    for (const std::int64_t tasks_before_cancel : {0, 1, 2, 3, 5, 9}) {
      for (const int num_slots : {1, 3}) {
        AttentionCase attention_case(problem, AttentionOptions(), type(), DeriveSeed("cancel"));
        support::ThreadExecutor executor(num_slots);
        executor.CancelAfter(tasks_before_cancel);
        const AttentionParams params = attention_case.params();
        EXPECT_TRUE(RunKernelOn(executor, PlanForSlots(algorithm(), params, num_slots), params));
        EXPECT_TRUE(attention_case.RunWasClean());
        EXPECT_LE(executor.tasks_started(), tasks_before_cancel + num_slots - 1);
      }
    }
  }
}

}  // namespace
}  // namespace ridgeline::kernels::attention
