// Flash attention over pages on the CPU is, bit for bit, flash attention of the same tokens in one stretch, and touches nothing
// that is not a token's.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/flash/schedule.h"
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
using support::PaddedProblem;
using support::Paged;
using support::RaggedProblem;

class FlashPagesTest : public ::testing::TestWithParam<DataType> {
 protected:
  static DataType type() { return GetParam(); }

  // Runs under the planner's plan with the keys in `key_splits` parts, where the kernel splits them at all; 0: as planned.
  std::vector<std::byte> Answer(AttentionCase& attention_case, const AttentionParams& params, std::int64_t key_splits = 0) {
    AttentionPlan plan = PlanForSlots(Algorithm::kFlash, params, executor_.num_slots());
    if (key_splits > 0) plan.key_splits = key_splits;
    plan.workspace_bytes = LayOutWorkspace(params.shape, params.sequences, plan, executor_.num_slots()).total_bytes;
    EXPECT_TRUE(RunKernelOn(executor_, plan, params));
    EXPECT_TRUE(attention_case.RunWasClean());
    std::vector<std::byte> answer(attention_case.output().bytes().begin(), attention_case.output().bytes().end());
    const std::span<std::byte> log_sum_exp = attention_case.log_sum_exp().bytes();
    answer.insert(answer.end(), log_sum_exp.begin(), log_sum_exp.end());
    return answer;
  }

  // The same inputs in one stretch and in pages. `change` may set some of them, the same in both.
  void ExpectPagesChangeNothing(const AttentionProblem& problem, const AttentionOptions& options, std::int64_t page_tokens,
                                std::int64_t key_splits = 0, const std::function<void(AttentionCase&)>& change = {}) {
    const std::uint64_t seed = DeriveSeed("pages", page_tokens);
    AttentionCase dense(problem, options, type(), seed), paged(Paged(problem, page_tokens), options, type(), seed);
    if (change) change(dense), change(paged);
    EXPECT_EQ(Answer(paged, paged.params(), key_splits), Answer(dense, dense.params(), key_splits))
        << paged.name() << ", splits " << key_splits;
  }

  support::ThreadExecutor executor_{3};
};

INSTANTIATE_TEST_SUITE_P(Types, FlashPagesTest, ::testing::ValuesIn(support::kAttentionTypes),
                         [](const auto& type) { return std::string(Name(type.param)); });

TEST_P(FlashPagesTest, EachOption) {
  for (const std::int64_t page_tokens : {1, 3, 16, 256}) {
    for (const AttentionProblem& problem : support::SmallAttentionProblems()) {
      for (const support::OptionVariant& variant : support::OptionVariants()) {
        if (support::Allowed(problem, With(variant))) ExpectPagesChangeNothing(problem, With(variant), page_tokens);
      }
    }
  }
}

TEST_P(FlashPagesTest, EachLengthAroundAPage) {
  AttentionOptions causal;
  causal.causal = true;
  for (const std::int64_t page_tokens : {1, 2, 7, 16, 64, 100, 256}) {
    for (const std::int64_t pages : {0, 1, 2, 5}) {
      std::vector<std::int64_t> lengths;
      for (const std::int64_t off : {-1, 0, 1}) lengths.push_back(std::max<std::int64_t>(0, pages * page_tokens + off));
      // Few rows are streamed, many go by tiles, and a batch has both.
      for (const std::int64_t query_tokens : {1, 5, 17}) {
        ExpectPagesChangeNothing(RaggedProblem({query_tokens, 1, query_tokens}, lengths, 4, 2, 40), causal, page_tokens);
      }
    }
  }
}

TEST_P(FlashPagesTest, EmptySequences) {
  for (const std::int64_t page_tokens : {1, 16}) {
    ExpectPagesChangeNothing(RaggedProblem({1, 0, 3, 40}, {0, 9, 0, 0}, 4, 2, 16), AttentionOptions(), page_tokens);
    ExpectPagesChangeNothing(PaddedProblem(2, 20, {0, 16, 17}, 2, 1, 16), AttentionOptions(), page_tokens);
  }
}

TEST_P(FlashPagesTest, SplitKeys) {
  for (const std::int64_t page_tokens : {1, 16, 100, 256}) {
    for (const std::int64_t key_splits : {1, 2, 5, 7}) {
      ExpectPagesChangeNothing(DenseProblem(2, 1, 1999, 16, 8, 64, 32), AttentionOptions(), page_tokens, key_splits);
      ExpectPagesChangeNothing(DenseProblem(1, 40, 1999, 2, 2, 32, 64), AttentionOptions(), page_tokens, key_splits);
    }
  }
}

// A window leaves out the pages before it, and the first page that it sees it sees in part.
TEST_P(FlashPagesTest, WindowThatBeginsInsideAPage) {
  AttentionOptions options;
  options.causal = true;
  for (const std::int64_t window_left : {0, 15, 16, 17, 100}) {
    options.window_left = window_left;
    for (const std::int64_t query_tokens : {1, 3, 60}) {
      ExpectPagesChangeNothing(DenseProblem(1, query_tokens, 499, 4, 2, 32, 32), options, 16);
    }
  }
}

// What one query does not see is not finite: the path that leaves such values out of products reads pages too.
TEST_P(FlashPagesTest, HiddenNonFiniteValues) {
  AttentionOptions options;
  options.causal = true;
  const auto hide = [](AttentionCase& attention_case) {
    constexpr std::int64_t kRow = 2 * 32;
    attention_case.value().Set(149 * kRow + 5, std::numeric_limits<double>::quiet_NaN());
    attention_case.value().Set(148 * kRow + 40, std::numeric_limits<double>::infinity());
  };
  for (const std::int64_t query_tokens : {3, 60}) {
    for (const std::int64_t page_tokens : {1, 16, 64}) {
      ExpectPagesChangeNothing(DenseProblem(1, query_tokens, 150, 4, 2, 32, 32), options, page_tokens, 0, hide);
    }
  }
}

// A page may lie further away than 32 bits of bytes.
TEST_P(FlashPagesTest, FarPages) {
  constexpr std::int64_t kPageTokens = 16, kHeads = 2, kHeadDim = 64, kPageElems = kPageTokens * kHeads * kHeadDim;
  constexpr std::int32_t kFarPage = (std::int64_t{1} << 32) / kPageElems + 1;  // 2^32 elements
  const std::int64_t page_bytes = kPageElems * ElementBytes(type());
  DeviceMemory key((kFarPage + 1) * page_bytes), value((kFarPage + 1) * page_bytes);
  if (!key.allocated() || !value.allocated()) GTEST_SKIP() << "no address space for 2^32 elements";

  AttentionCase attention_case(DenseProblem(1, 1, 2 * kPageTokens, 4, kHeads, kHeadDim, kHeadDim), AttentionOptions(), type(),
                               DeriveSeed("far"));
  const std::vector<std::byte> dense = Answer(attention_case, attention_case.params());
  for (const auto& [from, to] : {std::pair(&attention_case.key(), &key), std::pair(&attention_case.value(), &value)}) {
    to->Write(kFarPage * page_bytes, from->bytes().first(page_bytes));
    to->Write(0, from->bytes().subspan(page_bytes));
  }
  const std::int32_t block_table[] = {kFarPage, 0};
  AttentionParams params = attention_case.params();
  params.shape.page_tokens = kPageTokens;
  params.block_table = block_table;
  params.key = key.data();
  params.value = value.data();
  EXPECT_EQ(Answer(attention_case, params), dense);
}

}  // namespace
}  // namespace ridgeline::kernels::attention
