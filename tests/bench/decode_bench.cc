// Decode steps on the CPU over pages in random order, beside a plain read of the same bytes in the same order; and the same
// keys and values in one stretch, beside a plain read of that. Timed in turn in one process; shares are of the read's rate.
// Times are the best of each: what else the machine does takes bandwidth and cores away, and never adds any.
//
//   decode_bench                                   the whole table
//   decode_bench --shape=1,32768,32,8,128          B,Sk,Hq,Hkv,D of one row; also --dtype=float16 --page_tokens=64
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/attention/flash/flash.h"
#include "kernels/attention/plan.h"
#include "kernels/common/rounding.h"
#include "kernels/common/simd_target.h"
#include "kernels/microbench/microbench.h"
#include "tests/bench/plain_read.h"
#include "tests/bench/samples.h"
#include "tests/support/thread_executor.h"

ABSL_FLAG(std::string, shape, "", "B,Sk,Hq,Hkv,D of one row; empty: the whole table.");
ABSL_FLAG(std::string, dtype, "bfloat16", "float32, float16 or bfloat16; with --shape.");
ABSL_FLAG(int, page_tokens, 16, "Tokens of a page; with --shape.");
ABSL_FLAG(int, query_tokens, 1, "Query tokens of each sequence.");
ABSL_FLAG(double, seconds, 0.5, "Time for each row, at least.");
ABSL_FLAG(int, threads, 0, "Threads; 0 = all.");

namespace ridgeline::bench {
namespace {

namespace attention = kernels::attention;
using kernels::DataType;

struct Row {
  std::int64_t batch, key_tokens, query_heads, kv_heads, head_dim;
  DataType type = DataType::kBFloat16;
  std::int64_t page_tokens = 16;
};

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using HostMemory = std::unique_ptr<std::byte, FreeMemory>;

// On huge pages where there are some, like the daemon's host memory.
HostMemory Allocate(std::int64_t bytes) {
  constexpr std::int64_t kHugePageBytes = 2 << 20;
  const std::int64_t rounded_bytes = kernels::RoundUp(std::max(bytes, kHugePageBytes), kHugePageBytes);
  HostMemory memory(static_cast<std::byte*>(std::aligned_alloc(kHugePageBytes, rounded_bytes)));
  if (memory == nullptr) {
    std::fprintf(stderr, "decode_bench: no memory for %ld bytes\n", rounded_bytes);
    std::exit(1);
  }
  (void)madvise(memory.get(), rounded_bytes, MADV_HUGEPAGE);
  return memory;
}

// A batch of decode steps with its own memory. Keys, then values, fill one arena: as pages, or read as a dense batch.
class Problem {
 public:
  Problem(const Row& row, kernels::Executor& executor)
      : executor_(executor), num_pages_(row.batch * kernels::CeilDivide(row.key_tokens, row.page_tokens)) {
    const std::int64_t query_tokens = absl::GetFlag(FLAGS_query_tokens);
    params_.shape = {.data_type = row.type,
                     .output_data_type = row.type,
                     .num_sequences = row.batch,
                     .query_heads = row.query_heads,
                     .kv_heads = row.kv_heads,
                     .head_dim = row.head_dim,
                     .value_head_dim = row.head_dim,
                     .window_right = 0};
    params_.scale = 0.125f;
    FillArena(row);
    const std::int64_t query_elements = row.batch * query_tokens * row.query_heads * row.head_dim;
    query_ = Allocate(query_elements * kernels::ElementBytes(row.type));
    kernels::microbench::FillNormalOnCpu(row.type, query_elements, 1, 0, 1, query_.get(), executor);
    output_ = Allocate(query_elements * kernels::ElementBytes(row.type));
    params_.query = query_.get();
    params_.output = output_.get();

    block_table_.resize(num_pages_);
    std::iota(block_table_.begin(), block_table_.end(), 0);
    std::shuffle(block_table_.begin(), block_table_.end(), std::mt19937(1));
    for (std::int64_t b = 0; b < row.batch; ++b) {
      dense_sequences_.push_back({b * query_tokens, query_tokens, b * row.key_tokens, row.key_tokens, 0});
      paged_sequences_.push_back({b * query_tokens, query_tokens, b * num_pages_ / row.batch, row.key_tokens, 0});
    }
  }

  std::int64_t arena_bytes() const { return arena_bytes_; }

  std::function<void()> Paged(std::int64_t page_tokens) {
    attention::AttentionParams params = params_;
    params.shape.page_tokens = page_tokens;
    params.block_table = block_table_.data();
    params.sequences = paged_sequences_.data();
    return Runner(params);
  }

  std::function<void()> Dense() {
    attention::AttentionParams params = params_;
    params.sequences = dense_sequences_.data();
    return Runner(params);
  }

  // Keys, then values, page by page as the sequences read them, or as they lie.
  std::function<void()> PagedReader() { return Reader(block_table_); }
  std::function<void()> DenseReader() {
    std::vector<std::int32_t> order(num_pages_);
    std::iota(order.begin(), order.end(), 0);
    return Reader(order);
  }

 private:
  std::function<void()> Reader(std::vector<std::int32_t> order) {
    const std::int64_t page_bytes = arena_bytes_ / 2 / num_pages_;
    return [this, page_bytes, order = std::move(order)] {
      sink_ = PlainRead(params_.key, page_bytes, order, executor_) + PlainRead(params_.value, page_bytes, order, executor_);
    };
  }

  void FillArena(const Row& row) {
    const std::int64_t plane_elements = num_pages_ * row.page_tokens * row.kv_heads * row.head_dim;
    const std::int64_t plane_bytes = plane_elements * kernels::ElementBytes(row.type);
    arena_bytes_ = 2 * plane_bytes;
    arena_ = Allocate(arena_bytes_);
    kernels::microbench::FillNormalOnCpu(row.type, 2 * plane_elements, 2, 0, 1, arena_.get(), executor_);
    params_.key = arena_.get();
    params_.value = arena_.get() + plane_bytes;
  }

  std::function<void()> Runner(attention::AttentionParams params) {
    const attention::CpuLimits limits{.num_slots = executor_.num_slots()};
    const attention::AttentionPlan plan =
        attention::PlanOnCpu(params.shape, params.sequences, attention::Algorithm::kFlash, limits);
    params.workspace = workspaces_.emplace_back(Allocate(plan.workspace_bytes)).get();
    return [this, plan, params] { attention::RunFlashOnCpu(plan, params, executor_); };
  }

  kernels::Executor& executor_;
  const std::int64_t num_pages_;
  std::int64_t arena_bytes_ = 0;
  attention::AttentionParams params_{};
  std::vector<attention::Sequence> dense_sequences_, paged_sequences_;
  std::vector<std::int32_t> block_table_;
  HostMemory arena_, query_, output_;
  std::vector<HostMemory> workspaces_;
  volatile std::uint64_t sink_ = 0;
};

void PrintHeader(const kernels::Executor& executor) {
  std::printf("%d threads, kernels on %s\n", executor.num_slots(), kernels::SimdTargetName().c_str());
  std::puts(
      "|  B |    Sk |  Hq/Hkv |   D | type     | page | pages GB/s | read GB/s | share | dense GB/s | read GB/s | share |");
  std::puts(
      "|----|-------|---------|-----|----------|------|------------|-----------|-------|------------|-----------|-------|");
}

void Measure(const Row& row, kernels::Executor& executor) {
  Problem problem(row, executor);
  const std::vector<Summary> times =
      TimeInTurn({problem.Paged(row.page_tokens), problem.PagedReader(), problem.Dense(), problem.DenseReader()}, 5,
                 absl::GetFlag(FLAGS_seconds));
  const auto rate = [&](int work) { return static_cast<double>(problem.arena_bytes()) / times[work].min_seconds / 1e9; };
  std::printf("| %2ld | %5ld | %3ld/%-3ld | %3ld | %-8s | %4ld | %10.1f | %9.1f | %5.2f | %10.1f | %9.1f | %5.2f |\n",
              row.batch, row.key_tokens, row.query_heads, row.kv_heads, row.head_dim, Name(row.type), row.page_tokens, rate(0),
              rate(1), rate(0) / rate(1), rate(2), rate(3), rate(2) / rate(3));
  std::fflush(stdout);
}

std::vector<Row> Table() {
  constexpr std::int64_t kKvHeads = 8;
  std::vector<Row> rows;
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat16, DataType::kFloat32}) {
    for (const std::int64_t head_dim : {64, 128}) {
      for (const std::int64_t group : {1, 4, 8}) {
        for (const std::int64_t page_tokens : {16, 64}) {
          rows.push_back({1, 32768, group * kKvHeads, kKvHeads, head_dim, type, page_tokens});
          rows.push_back({8, 8192, group * kKvHeads, kKvHeads, head_dim, type, page_tokens});
        }
      }
    }
  }
  return rows;
}

bool ParseRow(Row& row) {
  std::vector<std::int64_t> numbers;
  const std::vector<std::string> words = absl::StrSplit(absl::GetFlag(FLAGS_shape), ',');
  for (const std::string& word : words) {
    std::int64_t number;
    if (!absl::SimpleAtoi(word, &number) || number < 1) return false;
    numbers.push_back(number);
  }
  if (numbers.size() != 5) return false;
  row = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
  row.page_tokens = absl::GetFlag(FLAGS_page_tokens);
  if (row.page_tokens < 1) return false;
  row.key_tokens = kernels::RoundUp(row.key_tokens, row.page_tokens);  // every byte of the arena is read
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    if (absl::GetFlag(FLAGS_dtype) == Name(type)) row.type = type;
  }
  return absl::GetFlag(FLAGS_dtype) == Name(row.type);
}

int Run() {
  std::vector<Row> rows = Table();
  if (!absl::GetFlag(FLAGS_shape).empty()) {
    rows.resize(1);
    if (!ParseRow(rows[0])) {
      std::fputs(
          "decode_bench: --shape is B,Sk,Hq,Hkv,D, all at least 1, as --page_tokens; --dtype float32, float16, bfloat16\n",
          stderr);
      return 2;
    }
  }
  const int threads = absl::GetFlag(FLAGS_threads);
  support::ThreadExecutor executor(threads > 0 ? threads : static_cast<int>(std::thread::hardware_concurrency()));
  PrintHeader(executor);
  for (const Row& row : rows) Measure(row, executor);
  return 0;
}

}  // namespace
}  // namespace ridgeline::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return ridgeline::bench::Run();
}
