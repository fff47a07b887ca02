// Both algorithms on the shape table, with every option and every pair of options, in every type, against the double reference.
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

using support::Allowed;
using support::AttentionCase;
using support::AttentionOptions;
using support::AttentionProblem;
using support::DeriveSeed;

class AttentionTest : public ::testing::TestWithParam<DataType> {
 protected:
  void ExpectBothRight(const AttentionProblem& problem, const AttentionOptions& options, std::uint64_t seed) {
    AttentionCase attention_case(problem, options, GetParam(), seed);
    for (const Algorithm algorithm : kAlgorithms) {
      EXPECT_TRUE(IsRight(algorithm, attention_case)) << Name(algorithm);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Types, AttentionTest, ::testing::ValuesIn(support::kAttentionTypes),
                         [](const auto& type) { return std::string(Name(type.param)); });

TEST_P(AttentionTest, ShapeTable) {
  std::uint64_t index = 0;
  for (const AttentionProblem& problem : support::AttentionProblems()) {
    ExpectBothRight(problem, AttentionOptions(), DeriveSeed("shape", index++));
  }
}

TEST_P(AttentionTest, ShapeTableWithPairsOfOptions) {
  const std::vector<AttentionOptions> pairs = support::OptionPairs();
  std::mt19937_64 random(DeriveSeed("option pair"));
  std::uint64_t index = 0;
  for (const AttentionProblem& problem : support::AttentionProblems()) {
    AttentionOptions options = pairs[random() % pairs.size()];
    while (!Allowed(problem, options)) options = pairs[random() % pairs.size()];
    ExpectBothRight(problem, options, DeriveSeed("shape with options", index++));
  }
}

TEST_P(AttentionTest, ShapeTableCausal) {
  AttentionOptions causal;
  causal.name = "causal";
  causal.causal = true;
  std::uint64_t index = 0;
  for (const AttentionProblem& problem : support::AttentionProblems()) {
    ExpectBothRight(problem, causal, DeriveSeed("causal shape", index++));
  }
}

TEST_P(AttentionTest, AllPairsOfOptions) {
  std::uint64_t index = 0;
  for (const AttentionProblem& problem : support::SmallAttentionProblems()) {
    for (const AttentionOptions& options : support::OptionPairs()) {
      if (Allowed(problem, options)) ExpectBothRight(problem, options, DeriveSeed("pair", index++));
    }
  }
}

TEST_P(AttentionTest, AllSmallShapesWithAllSmallWindows) {
  const std::vector<std::optional<std::int64_t>> bounds = {std::nullopt, 0, 1, 4};
  std::uint64_t index = 0;
  for (std::int64_t query_tokens = 0; query_tokens <= 9; ++query_tokens) {
    for (std::int64_t key_tokens = 0; key_tokens <= 9; ++key_tokens) {
      for (const auto& left : bounds) {
        for (const auto& right : bounds) {
          AttentionOptions options;
          options.window_left = left;
          options.window_right = right;
          options.name =
              "left_" + (left ? std::to_string(*left) : "all") + "_right_" + (right ? std::to_string(*right) : "all");
          ExpectBothRight(support::DenseProblem(1, query_tokens, key_tokens, 2, 1, 8, 8), options,
                          DeriveSeed("small", index++));
        }
      }
    }
  }
}

// Ragged and padded batches of any lengths and heads; a failure names the seed that it was drawn from.
TEST_P(AttentionTest, ShapesDrawnAtRandom) {
  const std::vector<AttentionOptions> pairs = support::OptionPairs();
  for (std::uint64_t index = 0; index < 60; ++index) {
    const std::uint64_t seed = DeriveSeed("drawn", index);
    std::mt19937_64 random(seed);
    const auto draw = [&random](std::int64_t begin, std::int64_t end) {
      return std::uniform_int_distribution<std::int64_t>(begin, end - 1)(random);
    };
    const std::int64_t kv_heads = draw(1, 4);
    const std::int64_t query_heads = kv_heads * draw(1, 6);
    const std::int64_t head_dim = 8 * draw(1, 17);
    std::vector<std::int64_t> query_tokens(draw(1, 5));
    std::vector<std::int64_t> key_tokens(query_tokens.size());
    for (std::int64_t& tokens : query_tokens) tokens = draw(0, 2) == 0 ? draw(0, 4) : draw(0, 70);
    for (std::int64_t& tokens : key_tokens) tokens = draw(0, 150);
    const bool ragged = draw(0, 2) == 0;
    const AttentionProblem problem =
        ragged ? support::RaggedProblem(query_tokens, key_tokens, query_heads, kv_heads, head_dim)
               : support::PaddedProblem(query_tokens[0], 150, key_tokens, query_heads, kv_heads, head_dim);
    AttentionOptions options = pairs[draw(0, static_cast<std::int64_t>(pairs.size()))];
    if (Allowed(problem, options)) ExpectBothRight(problem, options, seed);
  }
}

}  // namespace
}  // namespace ridgeline::kernels::attention
