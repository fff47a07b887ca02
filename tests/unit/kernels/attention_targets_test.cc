// Every SIMD target that this build contains and this processor can run, not only the one that it would choose: a machine that
// is older than the one that ran the tests computes the same.
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/simd_fixed_targets.h"
// After the header that says which targets there are.
#include "hwy/highway.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "kernels/common/simd_target.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

using support::AttentionCase;
using support::AttentionOptions;
using support::AttentionProblem;
using support::DenseProblem;

void UseOnly(std::int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

class AttentionTargetsTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    UseOnly(GetParam());
    ASSERT_EQ(SimdTargetName(), hwy::TargetName(GetParam()));
  }
  void TearDown() override { UseOnly(0); }

  void ExpectRight(const AttentionProblem& problem, const AttentionOptions& options) {
    for (const DataType type : support::kAttentionTypes) {
      AttentionCase attention_case(problem, options, type, /*seed=*/1);
      for (const Algorithm algorithm : kAlgorithms) {
        EXPECT_TRUE(IsRight(algorithm, attention_case)) << Name(algorithm);
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, AttentionTargetsTest, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

TEST_P(AttentionTargetsTest, EachOption) {
  for (const AttentionProblem& problem : support::SmallAttentionProblems()) {
    for (const support::OptionVariant& variant : support::OptionVariants()) {
      if (support::Allowed(problem, With(variant))) ExpectRight(problem, With(variant));
    }
  }
}

// Every remainder that head dims, rows and keys leave beside whole vectors, for many rows and for few.
TEST_P(AttentionTargetsTest, EachRemainder) {
  AttentionOptions causal;
  causal.causal = true;
  for (std::int64_t head_dim = 8; head_dim <= 72; head_dim += 8) {
    ExpectRight(DenseProblem(1, 17, 35, 3, 1, head_dim, 80 - head_dim), causal);
  }
  for (std::int64_t tokens = 1; tokens <= 50; ++tokens) ExpectRight(DenseProblem(1, tokens, tokens, 2, 2, 8, 8), causal);
  for (std::int64_t keys = 130; keys <= 146; ++keys) ExpectRight(DenseProblem(2, 1, keys, 5, 1, 40, 40), AttentionOptions());
}

}  // namespace
}  // namespace ridgeline::kernels::attention
