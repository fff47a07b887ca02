// Times the CUDA attention kernels by themselves. Reads rows from standard input and answers each with a line of JSON, so that
// a driver can put a rival's measurement between any two of ours (bench.py does):
//
//   algorithm type B Sq Sk Hq Hkv D causal        e.g. flash bfloat16 4 4096 4096 16 16 128 1
//
// Tensors are random normals in the API's layout, [batch, tokens, heads, head_dim]; the L2 cache is warm. `burst_ms` is the
// median of back-to-back launches after a quarter of a second of rest and five warm-ups, `sustained_ms` the same after 200 ms
// of load, when the chip has reached the clock that its power allows.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/flash/flash_cuda.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/standard/standard_cuda.h"
#include "kernels/common/data_type.h"
#include "kernels/microbench/microbench_cuda.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/timing.h"

namespace ridgeline::gpu {
namespace {

namespace attention = kernels::attention;
using attention::Algorithm;
using kernels::DataType;

constexpr auto kRest = std::chrono::milliseconds(250);
constexpr int kWarmUps = 5;
constexpr int kLaunches = 40;
constexpr double kLoadMilliseconds = 200;
constexpr double kMostMillisecondsOfLaunches = 500;  // slow rows are timed fewer times

struct Row {
  Algorithm algorithm;
  DataType type;
  std::int64_t batch, query_tokens, key_tokens, query_heads, kv_heads, head_dim;
  bool causal;
};

bool ParseRow(const std::string& line, Row& row) {
  std::string algorithm, type;
  std::istringstream words(line);
  words >> algorithm >> type >> row.batch >> row.query_tokens >> row.key_tokens >> row.query_heads >> row.kv_heads >>
      row.head_dim >> row.causal;
  if (!words) return false;
  row.algorithm = algorithm == "standard" ? Algorithm::kStandard : Algorithm::kFlash;
  for (const DataType candidate : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    row.type = candidate;
    if (type == Name(candidate)) return algorithm == Name(row.algorithm);
  }
  return false;
}

// A problem in the device's memory.
class Problem {
 public:
  explicit Problem(const Row& row)
      : row_(row),
        sequences_(MakeSequences(row)),
        device_sequences_(row.batch * static_cast<std::int64_t>(sizeof(attention::Sequence))),
        query_(Bytes(row.query_tokens, row.query_heads)),
        key_(Bytes(row.key_tokens, row.kv_heads)),
        value_(Bytes(row.key_tokens, row.kv_heads)),
        output_(Bytes(row.query_tokens, row.query_heads)) {
    params_.shape = {.data_type = row.type,
                     .output_data_type = row.type,
                     .num_sequences = row.batch,
                     .query_heads = row.query_heads,
                     .kv_heads = row.kv_heads,
                     .head_dim = row.head_dim,
                     .value_head_dim = row.head_dim};
    if (row.causal) params_.shape.window_right = 0;
    params_.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(row.head_dim)));
    plan_ = attention::PlanOnCuda(params_.shape, sequences_.data(), row.algorithm, Limits());
    device_sequences_.Upload(sequences_.data());
    params_.sequences = reinterpret_cast<const attention::Sequence*>(device_sequences_.data());
    params_.query = Fill(query_, 1);
    params_.key = Fill(key_, 2);
    params_.value = Fill(value_, 3);
    params_.output = output_.data();
    workspace_ = std::make_unique<GuardedDeviceArray>(plan_.workspace_bytes);
    params_.workspace = workspace_->data();
    merge_workspace_ = std::make_unique<GuardedDeviceArray>(plan_.merge_workspace_bytes);  // all ones
    params_.merge_workspace = merge_workspace_->data();
  }

  const attention::AttentionPlan& plan() const { return plan_; }

  // Standard attention launches several for each sequence: a burst of them is more than a held stream can queue, and the host
  // would wait for itself.
  bool IsOneKernel() const { return row_.algorithm == Algorithm::kFlash; }

  kernels::CudaStatus Launch() const {
    if (row_.algorithm == Algorithm::kFlash) return attention::LaunchFlash(plan_, params_, Stream());
    return attention::LaunchStandard(plan_, params_, sequences_.data(), Cublas(), Stream(), nullptr);
  }

  // Memory begins as NaN: a time is worth nothing if the launch left some of it.
  bool OutputIsComplete() const {
    return kernels::ElementBytes(row_.type) == 2 ? IsWritten<std::uint16_t>() : IsWritten<std::uint32_t>();
  }

 private:
  template <typename Bits>
  bool IsWritten() const {
    std::vector<Bits> elements(output_.size_bytes() / sizeof(Bits));
    output_.Download(elements.data());
    return std::ranges::count(elements, static_cast<Bits>(-1)) == 0;
  }

  static std::vector<attention::Sequence> MakeSequences(const Row& row) {
    std::vector<attention::Sequence> sequences;
    for (std::int64_t b = 0; b < row.batch; ++b) {
      sequences.push_back({.query_begin = b * row.query_tokens,
                           .query_tokens = row.query_tokens,
                           .key_begin = b * row.key_tokens,
                           .key_tokens = row.key_tokens,
                           .lse_begin = 0});
    }
    return sequences;
  }

  std::int64_t Bytes(std::int64_t tokens, std::int64_t heads) const {
    return row_.batch * tokens * heads * row_.head_dim * kernels::ElementBytes(row_.type);
  }

  const void* Fill(const GuardedDeviceArray& array, std::uint64_t seed) const {
    const std::int64_t elements = array.size_bytes() / kernels::ElementBytes(row_.type);
    Check(kernels::microbench::LaunchFillNormal(row_.type, elements, seed, 0, 1, array.data(), Stream()), "LaunchFillNormal");
    return array.data();
  }

  const Row row_;
  const std::vector<attention::Sequence> sequences_;
  GuardedDeviceArray device_sequences_, query_, key_, value_, output_;
  std::unique_ptr<GuardedDeviceArray> workspace_, merge_workspace_;
  attention::AttentionParams params_{};
  attention::AttentionPlan plan_;
};

void LaunchOnce(const Problem& problem) { Check(problem.Launch(), problem.plan().kernel.c_str()); }

// Median time of one launch, `warm_ups` after the first.
double MedianMilliseconds(const Problem& problem, int warm_ups, int launches) {
  const std::vector<TimedEvent> starts(launches), ends(launches);
  for (int i = kWarmUps; i < warm_ups; ++i) LaunchOnce(problem);  // load; more than a held stream could queue
  {
    const bool holds = warm_ups == kWarmUps && problem.IsOneKernel();
    const auto hold = holds ? std::make_unique<StreamHold>() : nullptr;
    for (int i = 0; i < kWarmUps; ++i) LaunchOnce(problem);
    for (int i = 0; i < launches; ++i) {
      starts[i].Record();
      LaunchOnce(problem);
      ends[i].Record();
    }
  }
  Check(cudaStreamSynchronize(Stream()), "cudaStreamSynchronize");
  std::vector<double> milliseconds;
  for (int i = 0; i < launches; ++i) milliseconds.push_back(ends[i].MillisecondsSince(starts[i]));
  std::ranges::nth_element(milliseconds, milliseconds.begin() + launches / 2);
  return milliseconds[launches / 2];
}

void Measure(const Row& row) {
  const Problem problem(row);
  LaunchOnce(problem);
  if (!problem.OutputIsComplete()) {
    std::printf("{\"error\": \"%s left output unwritten or wrote NaN\"}\n", problem.plan().kernel.c_str());
    return;
  }
  const double one = MedianMilliseconds(problem, kWarmUps, 1);
  const int launches = std::clamp(static_cast<int>(kMostMillisecondsOfLaunches / one), 5, kLaunches);
  std::this_thread::sleep_for(kRest);
  const double burst = MedianMilliseconds(problem, kWarmUps, launches);
  const double sustained = MedianMilliseconds(problem, kWarmUps + static_cast<int>(kLoadMilliseconds / burst) + 1, launches);
  std::printf("{\"burst_ms\": %.6f, \"sustained_ms\": %.6f, \"launches\": %d, \"kernel\": \"%s\"}\n", burst, sustained,
              launches, problem.plan().kernel.c_str());
}

}  // namespace
}  // namespace ridgeline::gpu

int main() {
  if (const std::string reason = ridgeline::gpu::WhyNoGpu(); !reason.empty()) {
    std::fprintf(stderr, "attention_gpu_bench: %s\n", reason.c_str());
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    ridgeline::gpu::Row row;
    if (ridgeline::gpu::ParseRow(line, row)) {
      ridgeline::gpu::Measure(row);
    } else {
      std::puts("{\"error\": \"a row is: algorithm type B Sq Sk Hq Hkv D causal\"}");
    }
    std::fflush(stdout);
  }
  return 0;
}
