// Times paged decode on the GPU beside a plain read of the same bytes, and prints CSV:
//
//   decode_gpu_bench [--pages 16,64,0] [--shapes 8x8k,ragged_32x1k,...] [--l2 warm,cold]
//
// bfloat16, one query a sequence, 32 query and 8 KV heads of 128. Pages lie in random order, pages of 0 tokens are dense keys;
// keys and values are random normals. Forks are timed by themselves and as a cascade, beside a plain read of what they have
// once. Times are medians of single launches between two events. Cold: before each, ordinary loads of four times the L2 cache.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/cascade/cascade.h"
#include "kernels/attention/cascade/cascade_cuda.h"
#include "kernels/attention/decode/decode_cuda.h"
#include "kernels/attention/plan.h"
#include "kernels/common/data_type.h"
#include "kernels/microbench/microbench_cuda.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/read_memory.h"
#include "tests/gpu/timing.h"

namespace ridgeline::gpu {
namespace {

namespace attention = kernels::attention;
using kernels::DataType;

constexpr std::int64_t kQueryHeads = 32, kKvHeads = 8, kHeadDim = 128;
constexpr std::int64_t kTokenBytes = kKvHeads * kHeadDim * 2;  // of keys, and as many of values
constexpr double kTimedMilliseconds = 20;
constexpr int kFewestLaunches = 9, kMostLaunches = 41;
constexpr int kWarmUps = 3;

struct Shape {
  std::string name;
  std::vector<std::int64_t> key_tokens;
  std::int64_t shared_tokens = 0;  // with which all begin

  std::int64_t stored_tokens() const { return std::accumulate(key_tokens.begin(), key_tokens.end(), std::int64_t{0}); }
  // Different ones.
  std::int64_t tokens() const { return stored_tokens() - (std::ssize(key_tokens) - 1) * shared_tokens; }
};

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const int batch : {1, 8, 32, 128}) {
    for (const int thousands : {1, 8, 32}) {
      shapes.push_back({.name = std::to_string(batch) + "x" + std::to_string(thousands) + "k",
                        .key_tokens = std::vector<std::int64_t>(batch, std::int64_t{thousands} * 1024)});
    }
  }
  std::mt19937 random(7);
  for (const auto& [batch, mean] : {std::pair(8, 1024), std::pair(32, 1024), std::pair(32, 8192), std::pair(128, 8192)}) {
    Shape shape = {.name = "ragged_" + std::to_string(batch) + "x" + std::to_string(mean / 1024) + "k", .key_tokens = {}};
    for (int i = 0; i < batch; ++i) shape.key_tokens.push_back(std::uniform_int_distribution<int>(1, 2 * mean)(random));
    shapes.push_back(shape);
  }
  shapes.push_back({.name = "32k_among_31x512", .key_tokens = std::vector<std::int64_t>(32, 512)});
  shapes.back().key_tokens[13] = 32768;
  for (const auto& [forks, shared] : {std::pair(4, 32768), std::pair(8, 32768), std::pair(64, 8192), std::pair(64, 2048)}) {
    shapes.push_back({.name = std::to_string(forks) + "_forks_of_" + std::to_string(shared / 1024) + "k",
                      .key_tokens = std::vector<std::int64_t>(forks, shared + 128),
                      .shared_tokens = shared});
  }
  return shapes;
}

// Keys and values of every shape: its pages are the first ones.
class Pool {
 public:
  explicit Pool(std::int64_t tokens) : bytes_(tokens * kTokenBytes), memory_(2 * bytes_), sink_(4) {
    Check(kernels::microbench::LaunchFillNormal(DataType::kBFloat16, bytes_, 1, 0, 1, memory_.data(), Stream()),
          "LaunchFillNormal");
  }

  const void* key() const { return memory_.data(); }
  const void* value() const { return memory_.data() + bytes_; }

  // Reads as much as the keys and values of `tokens` tokens.
  void Read(std::int64_t tokens) const {
    Check(LaunchRead(memory_.data(), 2 * tokens * kTokenBytes, reinterpret_cast<std::uint32_t*>(sink_.data()), Stream()),
          "LaunchRead");
  }

 private:
  const std::int64_t bytes_;  // of keys
  GuardedDeviceArray memory_, sink_;
};

// A launch over pages of the pool, in the device's memory.
class Problem {
 public:
  Problem(const Shape& shape, std::int64_t page_tokens, const Pool& pool, bool is_cascade)
      : sequences_(MakeSequences(shape, page_tokens)),
        table_(MakeTable(shape, page_tokens)),
        device_sequences_(static_cast<std::int64_t>(sequences_.size() * sizeof(sequences_[0]))),
        device_table_(static_cast<std::int64_t>(table_.size() * sizeof(table_[0]))),
        query_(num_sequences() * kQueryHeads * kHeadDim * 2),
        output_(query_.size_bytes()) {
    params_.shape = {.data_type = DataType::kBFloat16,
                     .output_data_type = DataType::kBFloat16,
                     .num_sequences = num_sequences(),
                     .query_heads = kQueryHeads,
                     .kv_heads = kKvHeads,
                     .head_dim = kHeadDim,
                     .value_head_dim = kHeadDim,
                     .page_tokens = page_tokens};
    params_.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(kHeadDim)));
    plan_ = is_cascade ? PlanCascade() : PlanOf(params_.shape, sequences_.data());
    device_sequences_.Upload(sequences_.data());
    device_table_.Upload(table_.data());
    Check(kernels::microbench::LaunchFillNormal(DataType::kBFloat16, query_.size_bytes() / 2, 3, 0, 1, query_.data(), Stream()),
          "LaunchFillNormal");
    workspace_ = std::make_unique<GuardedDeviceArray>(plan_.workspace_bytes);
    merge_workspace_ = std::make_unique<GuardedDeviceArray>(plan_.merge_workspace_bytes);  // all ones
    params_.sequences = reinterpret_cast<const attention::Sequence*>(device_sequences_.data());
    if (page_tokens > 0) params_.block_table = reinterpret_cast<const std::int32_t*>(device_table_.data());
    params_.query = query_.data();
    params_.key = pool.key();
    params_.value = pool.value();
    params_.output = output_.data();
    params_.workspace = workspace_->data();
    params_.merge_workspace = merge_workspace_->data();
  }

  const attention::AttentionPlan& plan() const { return plan_; }
  void Launch() const {
    Check(plan_.cascade == nullptr ? attention::LaunchDecode(plan_, params_, Stream())
                                   : attention::LaunchCascade(plan_, params_, Stream()),
          plan_.kernel.c_str());
  }

  // Memory begins as NaN: a time is worth nothing if the launch left some of it.
  bool OutputIsComplete() const {
    std::vector<std::uint16_t> output(output_.size_bytes() / 2);
    output_.Download(output.data());
    return std::count(output.begin(), output.end(), 0xffff) == 0;
  }

 private:
  std::int64_t num_sequences() const { return static_cast<std::int64_t>(sequences_.size()); }

  static attention::AttentionPlan PlanOf(const attention::AttentionShape& shape, const attention::Sequence* sequences) {
    return attention::PlanOnCuda(shape, sequences, attention::Algorithm::kFlash, Limits());
  }

  attention::AttentionPlan PlanCascade() {
    const attention::SharedPrefixes prefixes = attention::FindSharedPrefixes(params_.shape, sequences_, table_);
    const auto size_bytes = static_cast<std::int64_t>(prefixes.sequences.size() * sizeof(prefixes.sequences[0]));
    pass_sequences_ = std::make_unique<GuardedDeviceArray>(size_bytes);
    pass_sequences_->Upload(prefixes.sequences.data());
    params_.pass_sequences = reinterpret_cast<const attention::Sequence*>(pass_sequences_->data());
    const auto plan_of_pass = [&](int pass) {
      return PlanOf(attention::CascadePassShape(params_.shape, prefixes, pass),
                    prefixes.sequences.data() + (pass == 0 ? 0 : prefixes.num_prefixes));
    };
    return attention::CombinePasses(params_.shape, prefixes, plan_of_pass(0), plan_of_pass(1));
  }

  // What a sequence has in the block table, or of dense keys.
  static std::int64_t Entries(std::int64_t tokens, std::int64_t page_tokens) {
    return page_tokens > 0 ? (tokens + page_tokens - 1) / page_tokens : tokens;
  }

  static std::vector<attention::Sequence> MakeSequences(const Shape& shape, std::int64_t page_tokens) {
    std::vector<attention::Sequence> sequences;
    std::int64_t table_begin = 0;
    for (const std::int64_t tokens : shape.key_tokens) {
      const auto idx = static_cast<std::int64_t>(sequences.size());
      sequences.push_back(
          {.query_begin = idx, .query_tokens = 1, .key_begin = table_begin, .key_tokens = tokens, .lse_begin = idx});
      table_begin += Entries(tokens, page_tokens);
    }
    return sequences;
  }

  static std::vector<std::int32_t> MakeTable(const Shape& shape, std::int64_t page_tokens) {
    if (page_tokens == 0) return {};
    std::int64_t pages = 0;
    for (const std::int64_t tokens : shape.key_tokens) pages += Entries(tokens, page_tokens);
    std::vector<std::int32_t> table(pages);
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(11));
    const std::int64_t shared = shape.shared_tokens / page_tokens;
    for (std::int64_t begin = Entries(shape.key_tokens[0], page_tokens); begin < pages;
         begin += Entries(shape.key_tokens[0], page_tokens)) {
      if (shared > 0) std::copy_n(table.begin(), shared, table.begin() + begin);
    }
    return table;
  }

  const std::vector<attention::Sequence> sequences_;
  const std::vector<std::int32_t> table_;
  GuardedDeviceArray device_sequences_, device_table_, query_, output_;
  std::unique_ptr<GuardedDeviceArray> pass_sequences_, workspace_, merge_workspace_;
  attention::AttentionParams params_{};
  attention::AttentionPlan plan_;
};

class Timer {
 public:
  Timer() : flush_(4 * Limits().l2_cache_bytes), sink_(4) {}

  // Median of single launches, all queued before the first one runs. Cold: each after reading other memory.
  double MedianMicroseconds(bool is_cold, const std::function<void()>& launch) const {
    Flush();  // of what was timed before
    for (int i = 0; i < kWarmUps; ++i) launch();
    const double one = Median(is_cold, launch, 1);
    return Median(is_cold, launch,
                  std::clamp(static_cast<int>(kTimedMilliseconds * 1e3 / one), kFewestLaunches, kMostLaunches));
  }

 private:
  void Flush() const {
    Check(LaunchRead(flush_.data(), flush_.size_bytes(), reinterpret_cast<std::uint32_t*>(sink_.data()), Stream()),
          "LaunchRead");
  }

  double Median(bool is_cold, const std::function<void()>& launch, int launches) const {
    const std::vector<TimedEvent> starts(launches), ends(launches);
    {
      const StreamHold hold;
      for (int i = 0; i < launches; ++i) {
        if (is_cold) Flush();
        starts[i].Record();
        launch();
        ends[i].Record();
      }
    }
    std::vector<double> times;
    for (int i = 0; i < launches; ++i) times.push_back(ends[i].MillisecondsSince(starts[i]) * 1e3);
    std::nth_element(times.begin(), times.begin() + launches / 2, times.end());
    return times[launches / 2];
  }

  GuardedDeviceArray flush_, sink_;
};

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream stream(list);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

struct Choice {
  std::vector<std::string> pages = {"16", "64", "0"};
  std::vector<std::string> shapes;  // empty: all
  std::vector<std::string> l2 = {"warm", "cold"};
};

bool Parse(int argc, char** argv, Choice& choice) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--pages") {
      choice.pages = Split(argv[i + 1]);
    } else if (flag == "--shapes") {
      choice.shapes = Split(argv[i + 1]);
    } else if (flag == "--l2") {
      choice.l2 = Split(argv[i + 1]);
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

void PrintRow(const Shape& shape, const std::string& page, const std::string& l2, bool is_cascade, const Pool& pool,
              const Timer& timer) {
  const Problem problem(shape, std::stoll(page), pool, is_cascade);
  const double decode = timer.MedianMicroseconds(l2 == "cold", [&] { problem.Launch(); });
  const double read = timer.MedianMicroseconds(l2 == "cold", [&] { pool.Read(shape.tokens()); });
  const double bytes = 2.0 * static_cast<double>(shape.tokens() * kTokenBytes);
  std::printf("%s%s,%s,%s,%.2f,%.0f,%.2f,%.3f,\"%s%s\"\n", shape.name.c_str(), is_cascade ? "_cascade" : "", page.c_str(),
              l2.c_str(), decode, bytes / decode * 1e-3, read, decode / read, problem.plan().kernel.c_str(),
              problem.OutputIsComplete() ? "" : " OUTPUT INCOMPLETE");
  std::fflush(stdout);
}

void Run(const Choice& choice) {
  std::vector<Shape> shapes = Shapes();
  if (!choice.shapes.empty()) {
    std::erase_if(shapes, [&](const Shape& shape) { return std::ranges::count(choice.shapes, shape.name) == 0; });
  }
  std::int64_t most_tokens = 0;
  for (const Shape& shape : shapes) {
    most_tokens = std::max(most_tokens, shape.stored_tokens() + 256 * std::ssize(shape.key_tokens));
  }
  const Pool pool(most_tokens);
  const Timer timer;
  std::printf("shape,page_tokens,l2,decode_us,gigabytes_per_second,plain_read_us,decode_over_read,kernel\n");
  for (const std::string& page : choice.pages) {
    for (const Shape& shape : shapes) {
      for (const std::string& l2 : choice.l2) {
        PrintRow(shape, page, l2, /*is_cascade=*/false, pool, timer);
        if (shape.shared_tokens > 0 && page != "0") PrintRow(shape, page, l2, /*is_cascade=*/true, pool, timer);
      }
    }
  }
}

}  // namespace
}  // namespace ridgeline::gpu

int main(int argc, char** argv) {
  ridgeline::gpu::Choice choice;
  if (!ridgeline::gpu::Parse(argc, argv, choice)) {
    std::fprintf(stderr, "usage: decode_gpu_bench [--pages 16,64,0] [--shapes 8x8k,...] [--l2 warm,cold]\n");
    return 2;
  }
  const std::string why_no_gpu = ridgeline::gpu::WhyNoGpu();
  if (!why_no_gpu.empty()) {
    std::fprintf(stderr, "decode_gpu_bench: %s\n", why_no_gpu.c_str());
    return 1;
  }
  ridgeline::gpu::Run(choice);
  return 0;
}
