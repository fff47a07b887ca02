// Attention on the CPU: flash beside standard attention and beside OpenBLAS's own matrix product, timed in turn in one process.
// Rates count the FLOPs of visible pairs only, so causal standard attention, which computes all pairs, shows half of its rate.
//
//   attention_bench                               the whole table
//   attention_bench --shape=1,4096,4096,8,8,64    B,Sq,Sk,Hq,Hkv,D; also --dtype=bfloat16 --causal --format=csv
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/attention/cost.h"
#include "kernels/attention/flash/flash.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/standard/standard.h"
#include "kernels/common/blas_check.h"
#include "kernels/common/simd_target.h"
#include "kernels/microbench/microbench.h"
#include "tests/bench/samples.h"
#include "tests/support/thread_executor.h"

ABSL_FLAG(std::string, shape, "", "B,Sq,Sk,Hq,Hkv,D of one row; empty: the whole table.");
ABSL_FLAG(std::string, dtype, "float32", "float32, float16 or bfloat16; with --shape.");
ABSL_FLAG(bool, causal, false, "Causal mask; with --shape.");
ABSL_FLAG(bool, standard, true, "Time standard attention too.");
ABSL_FLAG(std::string, format, "table", "table or csv.");
ABSL_FLAG(double, seconds, 1, "Time for each row, at least.");
ABSL_FLAG(int, threads, 0, "Threads; 0 = all.");

namespace ridgeline::bench {
namespace {

namespace attention = kernels::attention;
using kernels::DataType;

struct Row {
  std::int64_t batch, query_tokens, key_tokens, query_heads, kv_heads, head_dim;
  DataType type = DataType::kFloat32;
  bool causal = false;
};

// A problem with its own memory: random normal inputs, outputs, and workspace for both algorithms.
class Problem {
 public:
  Problem(const Row& row, kernels::Executor& executor) : row_(row), executor_(executor) {
    params_.shape = {.data_type = row.type,
                     .output_data_type = row.type,
                     .num_sequences = row.batch,
                     .query_heads = row.query_heads,
                     .kv_heads = row.kv_heads,
                     .head_dim = row.head_dim,
                     .value_head_dim = row.head_dim};
    if (row.causal) params_.shape.window_right = 0;
    for (std::int64_t b = 0; b < row.batch; ++b) {
      sequences_.push_back({b * row.query_tokens, row.query_tokens, b * row.key_tokens, row.key_tokens, 0});
    }
    params_.sequences = sequences_.data();
    params_.scale = 0.125f;
    params_.query = Fill(query_, row.batch * row.query_tokens * row.query_heads, 1);
    params_.key = Fill(key_, row.batch * row.key_tokens * row.kv_heads, 2);
    params_.value = Fill(value_, row.batch * row.key_tokens * row.kv_heads, 3);
    output_.resize(query_.size());
    params_.output = output_.data();
  }

  attention::Cost CountCost(attention::Algorithm algorithm) const {
    return attention::CountCost(params_.shape, sequences_.data(), {}, algorithm);
  }

  // A callable that runs one attention; owns nothing of its own but the plan.
  std::function<void()> Runner(attention::Algorithm algorithm, std::string* kernel) {
    const attention::CpuLimits limits{.num_slots = executor_.num_slots()};
    attention::AttentionPlan plan = attention::PlanOnCpu(params_.shape, sequences_.data(), algorithm, limits);
    if (kernel != nullptr) *kernel = plan.kernel;
    const std::size_t needed = static_cast<std::size_t>(plan.workspace_bytes) + kAlignment;
    if (workspace_.size() < needed) workspace_.resize(needed);
    return [this, plan] {
      attention::AttentionParams params = params_;
      const auto address = reinterpret_cast<std::uintptr_t>(workspace_.data());
      params.workspace = reinterpret_cast<void*>((address + kAlignment - 1) / kAlignment * kAlignment);
      if (plan.algorithm == attention::Algorithm::kFlash) {
        attention::RunFlashOnCpu(plan, params, executor_);
      } else {
        attention::RunStandardOnCpu(plan, params, executor_);
      }
    };
  }

 private:
  static constexpr std::size_t kAlignment = 64;

  const void* Fill(std::vector<std::byte>& storage, std::int64_t token_heads, std::uint64_t seed) {
    const std::int64_t elements = token_heads * row_.head_dim;
    storage.resize(static_cast<std::size_t>(elements * kernels::ElementBytes(row_.type)));
    kernels::microbench::FillNormalOnCpu(row_.type, elements, seed, 0, 1, storage.data(), executor_);
    return storage.data();
  }

  const Row row_;
  kernels::Executor& executor_;
  attention::AttentionParams params_{};
  std::vector<attention::Sequence> sequences_;
  std::vector<std::byte> query_, key_, value_, output_, workspace_;
};

// OpenBLAS's best case on all threads: a square product, split by rows.
class Sgemm {
 public:
  explicit Sgemm(kernels::Executor& executor) : executor_(executor), a_(kSize * kSize, 0.5f), b_(a_), c_(a_) {}

  double flops() const { return 2.0 * kSize * kSize * kSize; }

  void operator()() {
    const std::int64_t parts = executor_.num_slots();
    executor_.ParallelFor(parts, [&](std::int64_t part, int) {
      const std::int64_t begin = kSize * part / parts, end = kSize * (part + 1) / parts;
      kernels::OpenBlasSgemm(true, end - begin, kSize, kSize, 1, a_.data() + begin * kSize, kSize, b_.data(), kSize,
                             c_.data() + begin * kSize, kSize);
    });
  }

 private:
  static constexpr std::int64_t kSize = 2048;
  kernels::Executor& executor_;
  std::vector<float> a_, b_, c_;
};

void PrintHeader(bool csv) {
  if (csv) {
    std::puts(
        "batch,query_tokens,key_tokens,query_heads,kv_heads,head_dim,data_type,causal,flash_seconds,standard_seconds,"
        "flash_gflops_per_second,flash_gigabytes_per_second,sgemm_gflops_per_second,kernel");
    return;
  }
  std::printf("OpenBLAS core %s, kernels on %s\n", kernels::OpenBlasCore().c_str(), kernels::SimdTargetName().c_str());
  std::puts(
      "|  B |    Sq |    Sk |  Hq/Hkv |   D | type     | mask   | flash ms | GFLOP/s |  GB/s | / sgemm | standard ms | / flash "
      "|");
  std::puts(
      "|----|-------|-------|---------|-----|----------|--------|----------|---------|-------|---------|-------------|---------"
      "|");
}

void Measure(const Row& row, kernels::Executor& executor, Sgemm& sgemm, bool csv) {
  Problem problem(row, executor);
  std::string kernel;
  std::vector<std::function<void()>> works{problem.Runner(attention::Algorithm::kFlash, &kernel), [&] { sgemm(); }};
  const bool with_standard = absl::GetFlag(FLAGS_standard);
  if (with_standard) works.push_back(problem.Runner(attention::Algorithm::kStandard, nullptr));
  const std::vector<Summary> times = TimeInTurn(works, 5, absl::GetFlag(FLAGS_seconds));
  const attention::Cost cost = problem.CountCost(attention::Algorithm::kFlash);
  const double flash_seconds = times[0].median_seconds;
  const double standard_seconds = with_standard ? times[2].median_seconds : 0;
  const double flash_rate = static_cast<double>(cost.flops) / flash_seconds / 1e9;
  const double flash_bandwidth = static_cast<double>(cost.bytes) / flash_seconds / 1e9;
  const double sgemm_rate = sgemm.flops() / times[1].median_seconds / 1e9;
  if (csv) {
    std::printf("%ld,%ld,%ld,%ld,%ld,%ld,%s,%d,%.9f,%.9f,%.2f,%.2f,%.2f,\"%s\"\n", row.batch, row.query_tokens, row.key_tokens,
                row.query_heads, row.kv_heads, row.head_dim, Name(row.type), row.causal, flash_seconds, standard_seconds,
                flash_rate, flash_bandwidth, sgemm_rate, kernel.c_str());
  } else {
    std::printf("| %2ld | %5ld | %5ld | %3ld/%-3ld | %3ld | %-8s | %-6s | %8.3f | %7.1f | %5.1f | %7.2f | %11.3f | %7.2f |\n",
                row.batch, row.query_tokens, row.key_tokens, row.query_heads, row.kv_heads, row.head_dim, Name(row.type),
                row.causal ? "causal" : "full", flash_seconds * 1e3, flash_rate, flash_bandwidth, flash_rate / sgemm_rate,
                standard_seconds * 1e3, standard_seconds / flash_seconds);
  }
  std::fflush(stdout);
}

std::vector<Row> Table() {
  std::vector<Row> rows;
  for (const std::int64_t head_dim : {64, 128}) {
    for (const bool causal : {false, true}) {
      for (const std::int64_t tokens : {64, 128, 256, 512, 1024, 2048, 4096}) {
        rows.push_back({1, tokens, tokens, 8, 8, head_dim, DataType::kFloat32, causal});
      }
    }
    for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
      for (const std::int64_t tokens : {256, 1024, 4096}) rows.push_back({1, tokens, tokens, 8, 8, head_dim, type});
    }
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
      rows.push_back({1, 1, 32768, 32, 8, head_dim, type});
      rows.push_back({8, 1, 4096, 32, 8, head_dim, type});
    }
  }
  return rows;
}

bool ParseRow(Row& row) {
  const std::vector<std::string> words = absl::StrSplit(absl::GetFlag(FLAGS_shape), ',');
  std::vector<std::int64_t> numbers;
  for (const std::string& word : words) {
    std::int64_t number;
    if (!absl::SimpleAtoi(word, &number) || number < 1) return false;
    numbers.push_back(number);
  }
  if (numbers.size() != 6) return false;
  row = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    if (absl::GetFlag(FLAGS_dtype) == Name(type)) row.type = type;
  }
  row.causal = absl::GetFlag(FLAGS_causal);
  return absl::GetFlag(FLAGS_dtype) == Name(row.type);
}

int Run() {
  std::vector<Row> rows = Table();
  if (!absl::GetFlag(FLAGS_shape).empty()) {
    rows.resize(1);
    if (!ParseRow(rows[0])) {
      std::fputs("attention_bench: --shape is B,Sq,Sk,Hq,Hkv,D, all at least 1; --dtype float32, float16 or bfloat16\n",
                 stderr);
      return 2;
    }
  }
  const int threads = absl::GetFlag(FLAGS_threads);
  support::ThreadExecutor executor(threads > 0 ? threads : static_cast<int>(std::thread::hardware_concurrency()));
  Sgemm sgemm(executor);
  const bool csv = absl::GetFlag(FLAGS_format) == "csv";
  PrintHeader(csv);
  for (const Row& row : rows) Measure(row, executor, sgemm, csv);
  return 0;
}

}  // namespace
}  // namespace ridgeline::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return ridgeline::bench::Run();
}
