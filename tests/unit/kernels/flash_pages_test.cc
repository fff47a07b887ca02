// Flash attention over pages on the CPU is, bit for bit, flash attention of the same tokens in one stretch, and touches nothing
// that is not a token's.
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/flash/schedule.h"
#include "kernels/attention/plan.h"
#include "kernels/common/data_type.h"
#include "kernels/common/rounding.h"
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
using support::RaggedProblem;

// A block table that ends where memory ends: to read the entry behind it is to crash.
class TableAtTheEdge {
 public:
  explicit TableAtTheEdge(std::span<const std::int32_t> entries) {
    constexpr std::size_t kMemoryPage = 4096;
    bytes_ = static_cast<std::size_t>(RoundUp(static_cast<std::int64_t>(entries.size_bytes() + 1), kMemoryPage)) + kMemoryPage;
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::byte* const edge = static_cast<std::byte*>(memory_) + bytes_ - kMemoryPage;
    first_ = reinterpret_cast<std::int32_t*>(edge - entries.size_bytes());
    std::ranges::copy(entries, first_);
    mprotect(edge, kMemoryPage, PROT_NONE);
  }
  ~TableAtTheEdge() { munmap(memory_, bytes_); }
  TableAtTheEdge(const TableAtTheEdge&) = delete;
  TableAtTheEdge& operator=(const TableAtTheEdge&) = delete;

  const std::int32_t* entries() const { return first_; }

 private:
  std::size_t bytes_;
  void* memory_;
  std::int32_t* first_;
};

// The keys and values of a case in pages of random order. Between the sequences' block tables lie entries that lead out of
// memory, behind the last one none; what belongs to no token is NaN.
class PagedCase {
 public:
  PagedCase(AttentionCase& dense, std::int64_t page_tokens) : params_(dense.params()) {
    const AttentionShape& shape = params_.shape;
    std::int64_t num_pages = kUnusedPages;
    for (const Sequence& sequence : dense.sequences()) num_pages += CeilDivide(sequence.key_tokens, page_tokens);
    std::vector<std::int32_t> free_pages(num_pages);
    std::iota(free_pages.begin(), free_pages.end(), 0);
    std::shuffle(free_pages.begin(), free_pages.end(), std::mt19937_64(dense.seed()));

    const std::int64_t key_row = shape.kv_heads * shape.head_dim, value_row = shape.kv_heads * shape.value_head_dim;
    key_ = support::TestTensor(shape.data_type, num_pages * page_tokens * key_row);
    value_ = support::TestTensor(shape.data_type, num_pages * page_tokens * value_row);
    std::vector<std::int32_t> entries;
    for (Sequence sequence : dense.sequences()) {
      if (!entries.empty()) entries.push_back(kOutOfMemory);
      const std::int64_t dense_begin = std::exchange(sequence.key_begin, static_cast<std::int64_t>(entries.size()));
      for (std::int64_t token = 0; token < sequence.key_tokens; ++token) {
        if (token % page_tokens == 0) {
          entries.push_back(free_pages.back());
          free_pages.pop_back();
        }
        const std::int64_t row = entries.back() * page_tokens + token % page_tokens;
        CopyRow(dense.key(), dense_begin + token, key_, row, key_row);
        CopyRow(dense.value(), dense_begin + token, value_, row, value_row);
      }
      sequences_.push_back(sequence);
    }
    table_ = std::make_unique<TableAtTheEdge>(entries);

    params_.shape.page_tokens = page_tokens;
    params_.key = key_.buffer().data();
    params_.value = value_.buffer().data();
    params_.block_table = table_->entries();
    params_.sequences = sequences_.data();
  }

  const AttentionParams& params() const { return params_; }

 private:
  static constexpr std::int64_t kUnusedPages = 3;
  static constexpr std::int32_t kOutOfMemory = INT32_MAX;

  static void CopyRow(const support::TestTensor& from, std::int64_t from_row, support::TestTensor& to, std::int64_t to_row,
                      std::int64_t row_elems) {
    const std::int64_t row_bytes = row_elems * ElementBytes(from.type());
    std::memcpy(to.bytes().data() + to_row * row_bytes, from.bytes().data() + from_row * row_bytes, row_bytes);
  }

  AttentionParams params_;
  support::TestTensor key_, value_;
  std::vector<Sequence> sequences_;
  std::unique_ptr<TableAtTheEdge> table_;
};

class FlashPagesTest : public ::testing::TestWithParam<DataType> {
 protected:
  static DataType type() { return GetParam(); }

  // Runs under the planner's plan with the keys in `key_splits` parts, where the kernel splits them at all; 0: as planned.
  std::vector<std::byte> Answer(AttentionCase& attention_case, const AttentionParams& params, std::int64_t key_splits) {
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

  void ExpectPagesChangeNothing(const AttentionProblem& problem, const AttentionOptions& options, std::int64_t page_tokens,
                                std::int64_t key_splits = 0) {
    AttentionCase attention_case(problem, options, type(), DeriveSeed("pages", page_tokens));
    const std::vector<std::byte> dense = Answer(attention_case, attention_case.params(), key_splits);
    const PagedCase paged(attention_case, page_tokens);  // poisons the output
    EXPECT_EQ(Answer(attention_case, paged.params(), key_splits), dense)
        << attention_case.name() << ", pages of " << page_tokens << ", splits " << key_splits;
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
  for (const std::int64_t query_tokens : {3, 60}) {
    AttentionCase attention_case(DenseProblem(1, query_tokens, 150, 4, 2, 32, 32), options, type(), DeriveSeed("hidden"));
    const std::int64_t row = 2 * 32;
    attention_case.value().Set(149 * row + 5, std::numeric_limits<double>::quiet_NaN());
    attention_case.value().Set(148 * row + 40, std::numeric_limits<double>::infinity());
    const std::vector<std::byte> dense = Answer(attention_case, attention_case.params(), 0);
    for (const std::int64_t page_tokens : {1, 16, 64}) {
      const PagedCase paged(attention_case, page_tokens);
      EXPECT_EQ(Answer(attention_case, paged.params(), 0), dense) << page_tokens;
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
  const std::vector<std::byte> dense = Answer(attention_case, attention_case.params(), 0);
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
  EXPECT_EQ(Answer(attention_case, params, 0), dense);
}

}  // namespace
}  // namespace ridgeline::kernels::attention
