// Flash attention is right under any plan, not only under those that its planner makes today.
#include <cstdint>
#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/flash/schedule.h"
#include "kernels/attention/plan.h"
#include "kernels/common/data_type.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"
#include "tests/support/thread_executor.h"
#include "tests/unit/kernels/attention_runner_cpu.h"

namespace ridgeline::kernels::attention {
namespace {

using support::AttentionCase;
using support::AttentionOptions;
using support::DenseProblem;
using support::DeriveSeed;

class FlashPlanTest : public ::testing::TestWithParam<DataType> {
 protected:
  // Runs under the planner's plan, changed by `change`.
  template <typename Change>
  void ExpectRight(AttentionCase& attention_case, const Change& change) {
    const AttentionPlan plan = RunChanged(attention_case, change);
    EXPECT_TRUE(attention_case.RunWasClean());
    EXPECT_TRUE(attention_case.AnswerIsRight())
        << "query_block " << plan.query_block << " key_block " << plan.key_block << " key_splits " << plan.key_splits;
  }

  template <typename Change>
  AttentionPlan RunChanged(AttentionCase& attention_case, const Change& change) {
    const AttentionParams params = attention_case.params();
    AttentionPlan plan = PlanForSlots(Algorithm::kFlash, params, executor_.num_slots());
    change(plan);
    plan.workspace_bytes = LayOutWorkspace(params.shape, params.sequences, plan, executor_.num_slots()).total_bytes;
    EXPECT_TRUE(RunKernelOn(executor_, plan, params));
    return plan;
  }

  support::ThreadExecutor executor_{3};
};

INSTANTIATE_TEST_SUITE_P(Types, FlashPlanTest, ::testing::ValuesIn(support::kAttentionTypes),
                         [](const auto& type) { return std::string(Name(type.param)); });

TEST_P(FlashPlanTest, AnyBlocks) {
  AttentionOptions options;
  options.causal = true;
  options.window_left = 170;
  AttentionCase attention_case(DenseProblem(1, 150, 199, 3, 1, 40, 24), options, GetParam(), DeriveSeed("blocks"));
  for (const std::int64_t query_block : {16, 48, 96, 192, 960}) {
    for (const std::int64_t key_block : {16, 32, 128, 512}) {
      ExpectRight(attention_case, [&](AttentionPlan& plan) {
        plan.query_block = query_block;
        plan.key_block = key_block;
      });
    }
  }
}

TEST_P(FlashPlanTest, AnyNumberOfSplits) {
  for (const std::int64_t query_tokens : {1, 7}) {
    AttentionOptions options;
    options.causal = true;
    options.sink = support::Sink::kFinite;
    AttentionCase attention_case(DenseProblem(2, query_tokens, 2600, 4, 2, 32, 40), options, GetParam(), DeriveSeed("splits"));
    for (const std::int64_t key_splits : {1, 2, 3, 7, 10, 1000}) {
      ExpectRight(attention_case, [&](AttentionPlan& plan) { plan.key_splits = key_splits; });
    }
  }
}

// A ragged batch: members with fewer keys than splits, without keys, and without queries.
TEST_P(FlashPlanTest, SplitsOfUnequalMembers) {
  AttentionCase attention_case(support::RaggedProblem({1, 0, 2, 1, 200, 1}, {1500, 3, 0, 1, 900, 600}, 4, 1, 16),
                               AttentionOptions(), GetParam(), DeriveSeed("unequal"));
  for (const std::int64_t key_splits : {2, 5}) {
    ExpectRight(attention_case, [&](AttentionPlan& plan) { plan.key_splits = key_splits; });
  }
}

// Rows that see nothing of one split, of the other, or of both; their parts are empty and merge as such.
TEST_P(FlashPlanTest, SplitsOfWhichARowSeesNothing) {
  constexpr std::int64_t kKeys = 1200;
  AttentionOptions options;
  options.bias = support::Bias::kSharedByAll;
  AttentionCase attention_case(DenseProblem(1, 4, kKeys, 2, 1, 32, 32), options, GetParam(), DeriveSeed("empty splits"));
  for (std::int64_t j = 0; j < kKeys; ++j) {
    const bool first_half = j < kKeys / 2;
    for (const std::int64_t row : {0, 1, 2}) {
      if (row == 2 || first_half == (row == 0)) {
        attention_case.bias().Set(row * kKeys + j, -std::numeric_limits<double>::infinity());
      }
    }
  }
  ExpectRight(attention_case, [](AttentionPlan& plan) { plan.key_splits = 2; });

  AttentionOptions window;
  window.window_left = window.window_right = 200;  // the first queries end before the second split begins
  AttentionCase windowed(DenseProblem(1, 180, 800, 1, 1, 32, 32), window, GetParam(), DeriveSeed("window splits"));
  ExpectRight(windowed, [](AttentionPlan& plan) {
    plan.query_block = 192;
    plan.key_splits = 2;
  });
}

// Merging starts from no finite stand-in for -inf: here every logit is below any such number.
TEST_P(FlashPlanTest, SplitsOfTheSmallestLogits) {
  const double huge = GetParam() == DataType::kFloat16 ? 0x1p15 : 0x1p63;  // float16 itself ends the range earlier
  AttentionOptions options;
  options.scale = 1;
  AttentionCase attention_case(DenseProblem(1, 3, 1200, 1, 1, 8, 8), options, GetParam(), DeriveSeed("smallest"));
  for (std::int64_t i = 0; i < attention_case.query().elements(); ++i) attention_case.query().Set(i, i % 8 == 0 ? huge : 0);
  for (std::int64_t i = 0; i < attention_case.key().elements(); ++i) attention_case.key().Set(i, -huge);
  for (std::int64_t i = 0; i < attention_case.value().elements(); ++i) attention_case.value().Set(i, 0.75);
  RunChanged(attention_case, [](AttentionPlan& plan) { plan.key_splits = 4; });
  for (std::int64_t i = 0; i < 3 * 8; ++i) EXPECT_NEAR(attention_case.output().Get(i), 0.75, 1e-4);
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_NEAR(attention_case.log_sum_exp().Get(i), -huge * huge, huge * huge * 0x1p-22);
}

}  // namespace
}  // namespace ridgeline::kernels::attention
