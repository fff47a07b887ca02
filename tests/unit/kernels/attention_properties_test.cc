// What must hold for any inputs, whatever the right answer is.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"
#include "tests/support/comparator.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

using support::AllWithin;
using support::AttentionCase;
using support::AttentionOptions;
using support::AttentionProblem;
using support::Causal;
using support::DenseProblem;
using support::DeriveSeed;

class AttentionPropertiesTest : public ::testing::TestWithParam<std::tuple<Algorithm, DataType>> {
 protected:
  Algorithm algorithm() const { return std::get<0>(GetParam()); }
  DataType type() const { return std::get<1>(GetParam()); }

  std::vector<double> Answer(AttentionCase& attention_case) const {
    EXPECT_TRUE(RunKernel(algorithm(), attention_case.params()));
    return AnswerOf(attention_case);
  }
};

INSTANTIATE_TEST_SUITE_P(All, AttentionPropertiesTest,
                         ::testing::Combine(::testing::ValuesIn(kAlgorithms), ::testing::ValuesIn(support::kAttentionTypes)),
                         [](const auto& param) {
                           return std::string(Name(std::get<0>(param.param))) + "_" + Name(std::get<1>(param.param));
                         });

TEST_P(AttentionPropertiesTest, ConstantValuesComeBack) {
  for (const std::int64_t key_tokens : {1, 2, 63, 64, 65, 300, 1000}) {
    AttentionCase attention_case(DenseProblem(1, 5, key_tokens, 4, 2, 32, 32), Causal(), type(), DeriveSeed("constant"));
    for (std::int64_t i = 0; i < attention_case.value().elements(); ++i) attention_case.value().Set(i, 0.75);
    Answer(attention_case);
    // The weights sum to one but for their rounding.
    const double bound = 0.75 * (static_cast<double>(key_tokens) + 20) * 0x1p-24 + (type() == DataType::kFloat32 ? 0 : 0x1p-9);
    for (std::int64_t row = 0; row < 5 * 4; ++row) {
      const bool sees_a_key = row / 4 + key_tokens - 5 >= 0;
      EXPECT_NEAR(attention_case.output().Get(row * 32 + 7), sees_a_key ? 0.75 : 0, bound) << attention_case.name();
    }
  }
}

TEST_P(AttentionPropertiesTest, TwoRunsGiveEqualBytes) {
  for (const AttentionProblem& problem : {DenseProblem(2, 70, 131, 6, 2, 64, 64), DenseProblem(1, 1, 3000, 4, 1, 64, 64)}) {
    AttentionCase attention_case(problem, Causal(), type(), DeriveSeed("twice"));
    const std::vector<double> once = Answer(attention_case);
    EXPECT_EQ(Answer(attention_case), once) << attention_case.name();
  }
}

TEST_P(AttentionPropertiesTest, LaterTokensNeverChangeEarlierRows) {
  constexpr std::int64_t kTokens = 150;
  for (const std::int64_t unchanged : {1, 31, 64, 149}) {
    AttentionCase attention_case(DenseProblem(1, kTokens, kTokens, 2, 1, 32, 32), Causal(), type(), DeriveSeed("later"));
    const std::vector<double> before = Answer(attention_case);
    for (std::int64_t i = unchanged * 32; i < kTokens * 32; ++i) {
      attention_case.key().Set(i, 3 - attention_case.key().Get(i));
      attention_case.value().Set(i, -7);
    }
    const std::vector<double> after = Answer(attention_case);
    const auto earlier_rows = static_cast<std::ptrdiff_t>(unchanged * 2 * 32);
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + earlier_rows, after.begin())) << attention_case.name();
    EXPECT_NE(before[earlier_rows], after[earlier_rows]);
  }
}

TEST_P(AttentionPropertiesTest, BatchEqualsItsMembersAlone) {
  const std::vector<std::int64_t> query_tokens = {1, 0, 65, 3, 128};
  const std::vector<std::int64_t> key_tokens = {200, 5, 65, 0, 129};
  constexpr std::int64_t kQueryRow = 4 * 32, kKeyRow = 2 * 32;
  AttentionCase batch(support::RaggedProblem(query_tokens, key_tokens, 4, 2, 32), Causal(), type(), DeriveSeed("batch"));
  const std::vector<double> together = Answer(batch);
  const std::vector<double> bound = DifferenceBound(batch);
  for (std::size_t s = 0; s < query_tokens.size(); ++s) {
    const Sequence& sequence = batch.sequences()[s];
    AttentionCase alone(support::RaggedProblem({query_tokens[s]}, {key_tokens[s]}, 4, 2, 32), Causal(), type(), 0);
    const auto copy_part = [](const support::TestTensor& from, std::int64_t begin, support::TestTensor& to) {
      for (std::int64_t i = 0; i < to.elements(); ++i) to.Set(i, from.Get(begin + i));
    };
    copy_part(batch.query(), sequence.query_begin * kQueryRow, alone.query());
    copy_part(batch.key(), sequence.key_begin * kKeyRow, alone.key());
    copy_part(batch.value(), sequence.key_begin * kKeyRow, alone.value());
    std::vector<double> answer = Answer(alone);
    answer.resize(query_tokens[s] * kQueryRow);  // without log_sum_exp
    const std::span part = std::span(together).subspan(sequence.query_begin * kQueryRow, answer.size());
    const std::span part_bound = std::span(bound).subspan(sequence.query_begin * kQueryRow, answer.size());
    EXPECT_TRUE(
        AllWithin(answer, part, part_bound, {.name = "member " + std::to_string(s), .shape = {}, .seed = batch.seed()}));
  }
}

TEST_P(AttentionPropertiesTest, OrderOfKeysDoesNotMatterWithoutAMask) {
  constexpr std::int64_t kKeyTokens = 300, kRow = 2 * 32;
  AttentionCase attention_case(DenseProblem(1, 7, kKeyTokens, 4, 2, 32, 32), AttentionOptions(), type(), DeriveSeed("order"));
  const std::vector<double> before = Answer(attention_case);
  const std::vector<double> bound = DifferenceBound(attention_case);
  std::vector<std::int64_t> order(kKeyTokens);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(attention_case.seed()));
  for (support::TestTensor* tensor : {&attention_case.key(), &attention_case.value()}) {
    std::vector<double> elements(tensor->elements());
    for (std::int64_t i = 0; i < tensor->elements(); ++i) elements[i] = tensor->Get(i);
    for (std::int64_t i = 0; i < tensor->elements(); ++i) tensor->Set(i, elements[order[i / kRow] * kRow + i % kRow]);
  }
  EXPECT_TRUE(
      AllWithin(Answer(attention_case), before, bound, {.name = "permuted", .shape = {}, .seed = attention_case.seed()}));
}

// The widest distance between a query and a key is one less than the longer length: such a window hides nothing, and neither
// does the largest that can be asked for.
TEST_P(AttentionPropertiesTest, WindowThatCoversEverythingEqualsNone) {
  for (const AttentionProblem& problem :
       {DenseProblem(2, 40, 67, 4, 2, 32, 32), DenseProblem(1, 67, 40, 2, 1, 32, 32), DenseProblem(1, 1, 900, 2, 1, 64, 64)}) {
    AttentionCase without(problem, AttentionOptions(), type(), DeriveSeed("window"));
    const std::vector<double> want = Answer(without);
    const std::int64_t just_wide_enough = std::max(problem.query_tokens[0], problem.key_tokens[0]) - 1;
    for (const std::int64_t window : {just_wide_enough, std::int64_t{1} << 40, kUnlimitedWindow - 1}) {
      AttentionOptions options;
      options.window_left = options.window_right = window;
      AttentionCase with(problem, options, type(), without.seed());
      EXPECT_EQ(Answer(with), want) << problem.name << " window " << window;
    }
  }
}

// A causal mask is a window without a right side.
TEST_P(AttentionPropertiesTest, CausalEqualsARightWindowOfZero) {
  AttentionOptions window;
  window.window_right = 0;
  const AttentionProblem problem = DenseProblem(1, 40, 67, 2, 1, 32, 32);
  AttentionCase causal(problem, Causal(), type(), DeriveSeed("right"));
  AttentionCase windowed(problem, window, type(), causal.seed());
  EXPECT_EQ(Answer(windowed), Answer(causal));
}

// A context split over two servers: each attends to its half, one of them with the sink, and log-sum-exp merges the answers.
TEST_P(AttentionPropertiesTest, HalvesMergedByLogSumExpGiveTheWhole) {
  constexpr std::int64_t kQueryTokens = 9, kHeads = 4, kHeadDim = 32, kKeyTokens = 150;
  AttentionOptions options;
  options.sink = support::Sink::kFinite;
  options.output_data_type = DataType::kFloat32;
  AttentionCase whole(DenseProblem(1, kQueryTokens, kKeyTokens, kHeads, 2, kHeadDim, kHeadDim), options, type(),
                      DeriveSeed("merge"));
  const std::vector<double> want = Answer(whole);
  const std::vector<double> bound = DifferenceBound(whole);

  for (const std::int64_t split : {0, 1, 64, 149, 150}) {
    const auto answer_part = [&](std::int64_t begin, std::int64_t end, bool with_sink) {
      AttentionParams params = whole.params();
      Sequence part = whole.sequences()[0];
      part.key_begin = begin;
      part.key_tokens = end - begin;
      params.sequences = &part;
      if (!with_sink) params.sink_logits = nullptr;
      EXPECT_TRUE(RunKernel(algorithm(), params));
      return AnswerOf(whole);
    };
    const std::vector<double> first = answer_part(0, split, /*with_sink=*/true);
    const std::vector<double> second = answer_part(split, kKeyTokens, /*with_sink=*/false);
    std::vector<double> merged(want.size());
    const std::int64_t lse_begin = kQueryTokens * kHeads * kHeadDim;
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t i = 0; i < kQueryTokens; ++i) {
        const std::int64_t lse_idx = lse_begin + h * kQueryTokens + i;
        const double lse = std::log(std::exp(first[lse_idx]) + std::exp(second[lse_idx]));
        merged[lse_idx] = lse;
        for (std::int64_t d = 0; d < kHeadDim; ++d) {
          const std::int64_t idx = (i * kHeads + h) * kHeadDim + d;
          merged[idx] = std::exp(first[lse_idx] - lse) * first[idx] + std::exp(second[lse_idx] - lse) * second[idx];
        }
      }
    }
    EXPECT_TRUE(
        AllWithin(merged, want, bound, {.name = "merged at " + std::to_string(split), .shape = {}, .seed = whole.seed()}));
  }
}

}  // namespace
}  // namespace ridgeline::kernels::attention
