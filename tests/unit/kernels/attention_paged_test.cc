// Both algorithms over keys and values in pages. What a device's plan refuses is skipped.
#include <algorithm>
#include <cstddef>
#include <cstdint>
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

using support::Allowed;
using support::AllWithin;
using support::AttentionCase;
using support::AttentionOptions;
using support::AttentionProblem;
using support::Causal;
using support::DeriveSeed;
using support::Paged;
using support::RaggedProblem;

class AttentionPagedTest : public ::testing::TestWithParam<std::tuple<Algorithm, DataType>> {
 protected:
  Algorithm algorithm() const { return std::get<0>(GetParam()); }
  DataType type() const { return std::get<1>(GetParam()); }

  void SetUp() override {
    AttentionCase smallest(Paged(RaggedProblem({1}, {1}, 1, 1, 64), 16), AttentionOptions(), type(), 1);
    const std::string why_not = WhyNot(algorithm(), smallest.params());
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }

  void ExpectRight(const AttentionProblem& problem, const AttentionOptions& options, std::uint64_t seed) {
    AttentionCase attention_case(problem, options, type(), seed);
    EXPECT_TRUE(IsRight(algorithm(), attention_case));
  }

  std::vector<double> Answer(AttentionCase& attention_case) const {
    EXPECT_TRUE(RunKernel(algorithm(), attention_case.params()));
    EXPECT_TRUE(attention_case.RunWasClean());
    return AnswerOf(attention_case);
  }
};

INSTANTIATE_TEST_SUITE_P(All, AttentionPagedTest,
                         ::testing::Combine(::testing::ValuesIn(kAlgorithms), ::testing::ValuesIn(support::kAttentionTypes)),
                         [](const auto& param) {
                           return std::string(Name(std::get<0>(param.param))) + "_" + Name(std::get<1>(param.param));
                         });

// A prefill beside chunks and decode steps, a sequence shorter than any page but one, an empty one, one without queries.
AttentionProblem MixedBatch() { return RaggedProblem({1, 65, 3, 1, 0, 17}, {200, 65, 130, 0, 9, 2}, 6, 2, 64); }

TEST_P(AttentionPagedTest, ShapeTable) {
  std::uint64_t index = 0;
  for (const AttentionProblem& problem : support::PagedAttentionProblems()) {
    ExpectRight(problem, Causal(), DeriveSeed("paged shape", index++));
  }
}

TEST_P(AttentionPagedTest, ShapeTableWithPairsOfOptions) {
  const std::vector<AttentionOptions> pairs = support::OptionPairs();
  std::mt19937_64 random(DeriveSeed("paged option pair"));
  std::uint64_t index = 0;
  for (const AttentionProblem& problem : support::PagedAttentionProblems()) {
    AttentionOptions options = pairs[random() % pairs.size()];
    while (!Allowed(problem, options)) options = pairs[random() % pairs.size()];
    ExpectRight(problem, options, DeriveSeed("paged shape with options", index++));
  }
}

TEST_P(AttentionPagedTest, AllPairsOfOptions) {
  std::uint64_t index = 0;
  for (const AttentionProblem& problem : support::SmallPagedAttentionProblems()) {
    for (const AttentionOptions& options : support::OptionPairs()) {
      if (Allowed(problem, options)) ExpectRight(problem, options, DeriveSeed("paged pair", index++));
    }
  }
}

// Small ragged batches of decode steps and chunks; a failure names the seed that it was drawn from.
TEST_P(AttentionPagedTest, RaggedBatchesDrawnAtRandom) {
  const std::vector<AttentionOptions> pairs = support::OptionPairs();
  for (std::uint64_t index = 0; index < 1000; ++index) {
    const std::uint64_t seed = DeriveSeed("drawn pages", index);
    std::mt19937_64 random(seed);
    const auto draw = [&random](std::int64_t begin, std::int64_t end) {
      return std::uniform_int_distribution<std::int64_t>(begin, end - 1)(random);
    };
    const std::int64_t kv_heads = draw(1, 3);
    const std::int64_t query_heads = kv_heads * draw(1, 9);
    const std::int64_t head_dim = 8 * draw(1, 9);
    const std::int64_t page_tokens = draw(0, 2) == 0 ? draw(1, 9) : draw(1, 65);
    std::vector<std::int64_t> query_tokens(draw(1, 5));
    std::vector<std::int64_t> key_tokens(query_tokens.size());
    for (std::int64_t& tokens : query_tokens) tokens = draw(0, 3) < 2 ? 1 : draw(0, 7);
    for (std::int64_t& tokens : key_tokens) tokens = draw(0, 4) == 0 ? draw(0, 3) * page_tokens : draw(0, 70);
    AttentionProblem problem = Paged(RaggedProblem(query_tokens, key_tokens, query_heads, kv_heads, head_dim), page_tokens);
    if (draw(0, 4) == 0) problem = support::Forked(problem, draw(1, 5));
    AttentionOptions options = pairs[draw(0, static_cast<std::int64_t>(pairs.size()))];
    if (!Allowed(problem, options)) options = Causal();
    ExpectRight(problem, options, seed);
  }
}

TEST_P(AttentionPagedTest, MovingPagesChangesNothing) {
  for (const std::int64_t page_tokens : support::kPageTokens) {
    AttentionCase attention_case(Paged(MixedBatch(), page_tokens), Causal(), type(), DeriveSeed("moving"));
    const std::vector<double> want = Answer(attention_case);
    for (std::uint64_t order = 0; order < 4; ++order) {
      attention_case.MovePages(DeriveSeed("order", order));
      EXPECT_EQ(Answer(attention_case), want) << attention_case.name() << " order " << order;
    }
  }
}

TEST_P(AttentionPagedTest, PageSizeChangesNothingBeyondRounding) {
  AttentionCase dense(MixedBatch(), Causal(), type(), DeriveSeed("page size"));
  const std::vector<double> want = Answer(dense);
  const std::vector<double> bound = DifferenceBound(dense);
  for (const std::int64_t page_tokens : support::kPageTokens) {
    AttentionCase paged(Paged(MixedBatch(), page_tokens), Causal(), type(), dense.seed());
    EXPECT_TRUE(AllWithin(Answer(paged), want, bound, {.name = paged.name(), .shape = {}, .seed = paged.seed()}));
  }
}

TEST_P(AttentionPagedTest, TwoRunsGiveEqualBytes) {
  for (const AttentionProblem& problem : {MixedBatch(), RaggedProblem({1}, {3000}, 8, 2, 64)}) {
    AttentionCase attention_case(Paged(problem, 16), Causal(), type(), DeriveSeed("pages twice"));
    const std::vector<double> once = Answer(attention_case);
    EXPECT_EQ(Answer(attention_case), once) << attention_case.name();
  }
}

TEST_P(AttentionPagedTest, BatchEqualsItsMembersAlone) {
  AttentionCase batch(Paged(MixedBatch(), 16), Causal(), type(), DeriveSeed("paged batch"));
  const std::vector<double> together = Answer(batch);
  const std::vector<double> bound = DifferenceBound(batch);
  const std::int64_t row = batch.problem().query_heads * batch.problem().value_head_dim;
  for (std::int64_t s = 0; s < static_cast<std::int64_t>(batch.sequences().size()); ++s) {
    AttentionParams params = batch.params();
    params.sequences += s;
    params.shape.num_sequences = 1;
    EXPECT_TRUE(RunKernel(algorithm(), params));
    const std::vector<double> alone = AnswerOf(batch);
    const std::size_t begin = batch.sequences()[s].query_begin * row, size = batch.sequences()[s].query_tokens * row;
    EXPECT_TRUE(AllWithin(std::vector(alone.begin() + begin, alone.begin() + begin + size),
                          std::span(together).subspan(begin, size), std::span(bound).subspan(begin, size),
                          {.name = "member " + std::to_string(s), .shape = {}, .seed = batch.seed()}));
  }
}

// What a fork appends behind the shared pages, its relatives don't see.
TEST_P(AttentionPagedTest, ForksDoNotSeeEachOther) {
  AttentionProblem problem = support::Forked(Paged(RaggedProblem({1, 1}, {100, 120}, 4, 2, 64), 16), 6);
  AttentionCase attention_case(problem, AttentionOptions(), type(), DeriveSeed("forks"));
  ASSERT_EQ(problem.SharedTokens(1), 96);
  const std::vector<double> before = Answer(attention_case);
  const std::int64_t key_row = 2 * 64, output_row = 4 * 64;
  for (std::int64_t i = (100 + 96) * key_row; i < (100 + 120) * key_row; ++i) {
    attention_case.key().Set(i, 3 - attention_case.key().Get(i));
    attention_case.value().Set(i, -7);
  }
  const std::vector<double> after = Answer(attention_case);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + output_row, after.begin()));
  EXPECT_FALSE(std::equal(before.begin() + output_row, before.begin() + 2 * output_row, after.begin() + output_row));
}

}  // namespace
}  // namespace ridgeline::kernels::attention
