// Cascades on the GPU: forks whose prefix is read once get the same answers as any other sequences.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cascade/cascade.h"
#include "kernels/attention/decode/decode_shape.h"
#include "kernels/attention/plan.h"
#include "kernels/common/data_type.h"
#include "kernels/common/rounding.h"
#include "tests/gpu/gpu.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

using support::AttentionCase;
using support::AttentionOptions;
using support::AttentionProblem;
using support::Causal;
using support::DeriveSeed;
using support::Forked;
using support::Paged;
using support::RaggedProblem;

SharedPrefixes PrefixesOf(const AttentionParams& params, std::int64_t most_queries) {
  std::int64_t entries = 0;
  for (std::int64_t i = 0; i < params.shape.num_sequences; ++i) {
    const Sequence& sequence = params.sequences[i];
    entries = std::max(entries, sequence.key_begin + CeilDivide(sequence.key_tokens, params.shape.page_tokens));
  }
  return FindSharedPrefixes(params.shape, {params.sequences, static_cast<std::size_t>(params.shape.num_sequences)},
                            {params.block_table, static_cast<std::size_t>(entries)}, most_queries);
}

AttentionPlan PlanOf(const AttentionParams& params, const SharedPrefixes& prefixes) {
  AttentionPlan passes[kCascadePasses];
  for (int pass = 0; pass < kCascadePasses; ++pass) {
    const Sequence* const sequences = prefixes.sequences.data() + (pass == 0 ? 0 : prefixes.num_prefixes);
    passes[pass] = PlanOnCuda(CascadePassShape(params.shape, prefixes, pass), sequences, Algorithm::kFlash, gpu::Limits());
  }
  return CombinePasses(params.shape, prefixes, passes[0], passes[1]);
}

class CascadeTest : public ::testing::TestWithParam<DataType> {
 protected:
  // Prefixes as sequences for the decode kernel, and as one for those of whole prompts.
  void ExpectRight(const AttentionProblem& problem, const AttentionOptions& options = {}) {
    const std::int64_t decode_queries = kMostDecodeRows / (problem.query_heads / problem.kv_heads);
    for (const std::int64_t most_queries : {decode_queries, kManyQueries}) {
      AttentionCase attention_case(problem, options, GetParam(), DeriveSeed("cascade", ++num_cases_));
      AttentionParams params = attention_case.params();
      const SharedPrefixes prefixes = PrefixesOf(params, most_queries);
      ASSERT_TRUE(prefixes.saved_tokens > 0 || most_queries < kManyQueries) << attention_case.name();
      params.pass_sequences = prefixes.sequences.data();
      const AttentionPlan plan = PlanOf(params, prefixes);
      EXPECT_TRUE(RunKernel(plan, params)) << attention_case.name();
      EXPECT_TRUE(attention_case.RunWasClean()) << attention_case.name();
      EXPECT_TRUE(attention_case.AnswerIsRight()) << attention_case.name() << " " << plan.kernel;
    }
  }

  // So many forks that share `shared_tokens` and have a few of their own.
  static AttentionProblem Forks(std::int64_t count, std::int64_t query_tokens, std::int64_t shared_tokens, std::int64_t group,
                                std::int64_t kv_heads, std::int64_t head_dim, std::int64_t page_tokens) {
    std::vector<std::int64_t> key_tokens;
    for (std::int64_t i = 0; i < count; ++i) key_tokens.push_back(shared_tokens + query_tokens + i * 7 % 40);
    const std::vector<std::int64_t> queries(count, query_tokens);
    return Forked(Paged(RaggedProblem(queries, std::move(key_tokens), group * kv_heads, kv_heads, head_dim), page_tokens),
                  shared_tokens / page_tokens);
  }

 private:
  int num_cases_ = 0;
};

INSTANTIATE_TEST_SUITE_P(All, CascadeTest, ::testing::Values(DataType::kFloat16, DataType::kBFloat16),
                         [](const auto& param) { return Name(param.param); });

TEST_P(CascadeTest, AnyNumberOfForks) {
  for (const std::int64_t count : {2, 5, 8, 9, 40}) ExpectRight(Forks(count, 1, 320, 4, 2, 64, 16));
}

TEST_P(CascadeTest, EveryGroupPageAndHeadDim) {
  std::size_t turn = 0;
  constexpr std::int64_t kHeadDims[] = {64, 80, 128, 256};
  for (const std::int64_t group : {1, 5, 8, 16}) {
    for (const std::int64_t page_tokens : {1, 7, 64}) {
      ExpectRight(Forks(3, 1, 128, group, turn % 2 + 1, kHeadDims[turn % std::size(kHeadDims)], page_tokens));
      ++turn;
    }
  }
}

// The last queries of a sequence see less than all of its tail, and all of the prefix.
TEST_P(CascadeTest, SeveralQueriesUnderACausalMask) {
  for (const std::int64_t count : {2, 6, 20}) ExpectRight(Forks(count, 3, 200, 4, 2, 64, 16), Causal());
}

TEST_P(CascadeTest, OptionsOfEveryPass) {
  AttentionOptions options = Causal();
  options.name = "cascade_options";
  options.logit_soft_cap = 2;
  options.sink = support::Sink::kSomeMinusInfinity;
  options.output_data_type = DataType::kFloat32;
  ExpectRight(Forks(4, 2, 100, 2, 2, 64, 16), options);
  options.log_sum_exp = false;
  options.scale = -0.1;
  ExpectRight(Forks(4, 1, 100, 2, 2, 128, 16), options);
}

// A long prefix is cut over blocks, and others are beside it that share nothing.
TEST_P(CascadeTest, LongPrefixAmongOthers) {
  std::vector<std::int64_t> key_tokens(12, 6000);
  for (std::size_t i = 0; i < key_tokens.size(); ++i) key_tokens[i] += static_cast<std::int64_t>(i);
  key_tokens[5] = 0;
  key_tokens[6] = 3;
  ExpectRight(Forked(Paged(RaggedProblem(std::vector<std::int64_t>(12, 1), key_tokens, 8, 2, 128), 16), 375));
}

}  // namespace
}  // namespace ridgeline::kernels::attention
