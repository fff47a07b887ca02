// What a query does not see must not reach its result, whatever it holds; what it sees must.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "tests/reference/attention_reference.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"
#include "tests/support/attention_tolerance.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

using support::AttentionCase;
using support::AttentionOptions;
using support::DenseProblem;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class AttentionMaskingTest : public ::testing::TestWithParam<std::tuple<Algorithm, DataType>> {
 protected:
  static constexpr std::int64_t kHeads = 2, kHeadDim = 16;

  Algorithm algorithm() const { return std::get<0>(GetParam()); }
  DataType type() const { return std::get<1>(GetParam()); }

  static void FillToken(support::TestTensor& tensor, std::int64_t token, double value) {
    for (std::int64_t i = 0; i < kHeads * kHeadDim; ++i) tensor.Set(token * kHeads * kHeadDim + i, value);
  }

  // Runs with `poison` in the keys and values of some tokens of the case's only sequence. Rows that see one of them must come
  // out neither finite nor unnoticed, the others as if nothing had happened. Needs rows of both kinds.
  void ExpectContained(AttentionCase& attention_case, double poison, const std::vector<std::int64_t>& tokens) {
    const std::vector<double> clean = attention_case.expected().output;
    const std::vector<double> bound = support::BoundErrors(attention_case.params(), attention_case.expected()).output;
    for (const std::int64_t token : tokens) {
      FillToken(attention_case.key(), token, poison);
      FillToken(attention_case.value(), token, poison);
    }
    const AttentionParams params = attention_case.params();
    ASSERT_TRUE(RunKernel(algorithm(), params));
    EXPECT_TRUE(attention_case.RunWasClean());
    std::int64_t num_seeing_rows = 0;
    for (std::int64_t row = 0; row < kHeads * params.sequences[0].query_tokens; ++row) {
      const bool sees = Sees(params, row / kHeads, row % kHeads, tokens);
      num_seeing_rows += sees;
      for (std::int64_t idx = row * kHeadDim; idx < (row + 1) * kHeadDim; ++idx) {
        const double got = attention_case.output().Get(idx);
        if (sees) {
          EXPECT_FALSE(std::isfinite(got)) << "hidden from row " << row << ": " << attention_case.name();
        } else {
          EXPECT_NEAR(got, clean[idx], bound[idx]) << "leaked into row " << row << ": " << attention_case.name();
        }
      }
    }
    EXPECT_GT(num_seeing_rows, 0);
    EXPECT_LT(num_seeing_rows, kHeads * params.sequences[0].query_tokens);
  }

  static bool Sees(const AttentionParams& params, std::int64_t query_idx, std::int64_t head_idx,
                   const std::vector<std::int64_t>& tokens) {
    const std::vector<reference::VisibleKey> keys = reference::VisibleKeys(params, 0, head_idx, query_idx);
    return std::ranges::any_of(keys, [&](const auto& key) { return std::ranges::count(tokens, key.key_idx) > 0; });
  }
};

INSTANTIATE_TEST_SUITE_P(All, AttentionMaskingTest,
                         ::testing::Combine(::testing::ValuesIn(kAlgorithms), ::testing::ValuesIn(support::kAttentionTypes)),
                         [](const auto& param) {
                           return std::string(Name(std::get<0>(param.param))) + "_" + Name(std::get<1>(param.param));
                         });

// Later keys of the same block, of other blocks, and single ones in the middle, for NaN and both infinities.
TEST_P(AttentionMaskingTest, CausalMaskContainsLaterKeys) {
  for (const double poison : {kNaN, kInfinity, -kInfinity}) {
    for (const std::int64_t tokens : {5, 40, 130}) {
      AttentionOptions options;
      options.causal = true;
      AttentionCase last(DenseProblem(1, tokens, tokens, kHeads, kHeads, kHeadDim, kHeadDim), options, type(), 1);
      ExpectContained(last, poison, {tokens - 1});
      AttentionCase middle(DenseProblem(1, tokens, tokens, kHeads, kHeads, kHeadDim, kHeadDim), options, type(), 2);
      ExpectContained(middle, poison, {tokens / 2, tokens - 2});
    }
  }
}

TEST_P(AttentionMaskingTest, WindowContainsKeysOnBothSides) {
  for (const double poison : {kNaN, kInfinity}) {
    for (const std::int64_t tokens : {9, 40, 150}) {
      AttentionOptions options;
      options.window_left = 3;
      options.window_right = 2;
      AttentionCase attention_case(DenseProblem(1, tokens, tokens + 5, kHeads, kHeads, kHeadDim, kHeadDim), options, type(), 3);
      ExpectContained(attention_case, poison, {2, tokens / 2 + 5});
    }
  }
}

TEST_P(AttentionMaskingTest, BiasOfMinusInfinityContainsItsKey) {
  for (const double poison : {kNaN, kInfinity}) {
    AttentionOptions options;
    options.bias = support::Bias::kFull;
    AttentionCase attention_case(DenseProblem(1, 40, 70, kHeads, kHeads, kHeadDim, kHeadDim), options, type(), 4);
    for (std::int64_t row = 0; row < kHeads * 40; ++row) {
      if (row % 3 != 0) attention_case.bias().Set(row * 70 + 33, -kInfinity);
    }
    ExpectContained(attention_case, poison, {33});
  }
}

// The same bias hides whole rows; they are empty though their keys are full of NaN.
TEST_P(AttentionMaskingTest, RowHiddenByItsBiasIsEmpty) {
  AttentionOptions options;
  options.bias = support::Bias::kSharedByAll;
  AttentionCase attention_case(DenseProblem(1, 3, 20, kHeads, kHeads, kHeadDim, kHeadDim), options, type(), 5);
  for (std::int64_t i = 0; i < attention_case.bias().elements(); ++i) attention_case.bias().Set(i, -kInfinity);
  for (std::int64_t token = 0; token < 20; ++token) {
    FillToken(attention_case.key(), token, kNaN);
    FillToken(attention_case.value(), token, kNaN);
  }
  EXPECT_TRUE(IsRight(algorithm(), attention_case));
}

// One query decodes against keys whose last slots are not filled yet.
TEST_P(AttentionMaskingTest, LengthsContainWhatLiesBeyondThem) {
  AttentionCase attention_case(support::PaddedProblem(1, 200, {1, 130, 0, 199, 64}, 4, 2, 32), AttentionOptions(), type(), 6);
  EXPECT_TRUE(std::isnan(attention_case.key().Get((200 + 130) * 2 * 32)));
  EXPECT_TRUE(IsRight(algorithm(), attention_case));
}

// NaN in one query, or in one head, stays there.
TEST_P(AttentionMaskingTest, QueriesAndHeadsAreApart) {
  AttentionCase attention_case(DenseProblem(2, 20, 33, 4, 2, kHeadDim, kHeadDim), AttentionOptions(), type(), 7);
  attention_case.query().Set((7 * 4 + 1) * kHeadDim + 3, kNaN);  // query 7, head 1 of the first sequence
  for (std::int64_t token = 33; token < 66; ++token) {           // KV head 1 of the second
    attention_case.value().Set((token * 2 + 1) * kHeadDim, kNaN);
  }
  EXPECT_TRUE(IsRight(algorithm(), attention_case));
}

}  // namespace
}  // namespace ridgeline::kernels::attention
