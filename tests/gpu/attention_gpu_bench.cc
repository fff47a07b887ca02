// Times the CUDA attention kernels by themselves. Reads rows from standard input and answers each with a line of JSON, so that
// a driver can put a rival's measurement between any two of ours (bench.py does):
//
//   algorithm type B Sq Sk Hq Hkv D causal        e.g. flash bfloat16 4 4096 4096 16 16 128 1
//
// and after these, if wanted, options as attention_bench_row.h names them: window=1024 page_tokens=64 lengths=8192,33,100.
//
// Tensors are random normals, or a model's, in the API's layout, [batch, tokens, heads, head_dim]; the L2 cache is warm.
// `burst_ms` is the median of back-to-back launches after a quarter of a second of rest and five warm-ups, `sustained_ms` the
// same after 200 ms of load, when the chip has reached the clock that its power allows.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/decode/decode_cuda.h"
#include "kernels/attention/flash/flash_cuda.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/standard/standard_cuda.h"
#include "kernels/common/convert.h"
#include "kernels/common/data_type.h"
#include "kernels/microbench/microbench_cuda.h"
#include "tests/gpu/attention_bench_row.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/timing.h"
#include "tests/support/npy.h"
#include "tests/support/source_folder.h"

namespace ridgeline::gpu {
namespace {

namespace attention = kernels::attention;
using attention::Algorithm;
using kernels::DataType;
using Row = AttentionBenchRow;

constexpr auto kRest = std::chrono::milliseconds(250);
constexpr int kWarmUps = 5;
constexpr int kLaunches = 40;
constexpr double kLoadMilliseconds = 200;
constexpr double kMostMillisecondsOfLaunches = 500;  // slow rows are timed fewer times

// A problem in the device's memory.
class Problem {
 public:
  explicit Problem(const Row& row) : row_(row), sequences_(row.Sequences()) {
    params_.shape = {.data_type = row.type,
                     .output_data_type = row.type,
                     .num_sequences = static_cast<std::int64_t>(sequences_.size()),
                     .query_heads = row.query_heads,
                     .kv_heads = row.kv_heads,
                     .head_dim = row.head_dim,
                     .value_head_dim = row.ValueHeadDim(),
                     .page_tokens = row.page_tokens};
    if (row.causal) params_.shape.window_right = 0;
    if (row.window > 0) params_.shape.window_left = row.window - 1;
    params_.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(row.head_dim)));
    plan_ = attention::PlanOnCuda(params_.shape, sequences_.data(), row.algorithm, Limits());
    params_.sequences = static_cast<const attention::Sequence*>(Upload(sequences_));
    AllocateTensors();
    SetOptions();
    params_.workspace = Allocate(plan_.workspace_bytes);
    params_.merge_workspace = Allocate(plan_.merge_workspace_bytes);  // all ones
  }

  const attention::AttentionPlan& plan() const { return plan_; }

  // Standard attention launches several for each sequence: a burst of them is more than a held stream can queue, and the host
  // would wait for itself.
  bool IsOneKernel() const { return row_.algorithm == Algorithm::kFlash; }

  kernels::CudaStatus Launch() const {
    if (plan_.decode.num_blocks > 0) return attention::LaunchDecode(plan_, params_, Stream());
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
    std::vector<Bits> elements(output_->size_bytes() / sizeof(Bits));
    output_->Download(elements.data());
    return std::ranges::count(elements, static_cast<Bits>(-1)) == 0;
  }

  void* Allocate(std::int64_t size_bytes) {
    arrays_.push_back(std::make_unique<GuardedDeviceArray>(size_bytes));
    return arrays_.back()->data();
  }
  template <typename T>
  void* Upload(const std::vector<T>& elements) {
    Allocate(static_cast<std::int64_t>(elements.size() * sizeof(T)));
    arrays_.back()->Upload(elements.data());
    return arrays_.back()->data();
  }
  void* Normals(std::int64_t elements, std::uint64_t seed, DataType type, float deviation) {
    void* const data = Allocate(elements * kernels::ElementBytes(type));
    Check(kernels::microbench::LaunchFillNormal(type, elements, seed, 0, deviation, data, Stream()), "LaunchFillNormal");
    return data;
  }

  void AllocateTensors() {
    if (row_.layer >= 0) {
      params_.query = LayerTensor("query");
      params_.key = LayerTensor("key");
      params_.value = LayerTensor("value");
    } else {
      AllocateNormals();
    }
    params_.output = Allocate(row_.QueryTokens() * row_.query_heads * row_.ValueHeadDim() * kernels::ElementBytes(row_.type));
    output_ = arrays_.back().get();
    if (row_.page_tokens > 0) params_.block_table = static_cast<const std::int32_t*>(Upload(ShuffledPages()));
  }

  void AllocateNormals() {
    const std::int64_t query_rows = row_.QueryTokens() * row_.query_heads, key_rows = row_.KeyTokens() * row_.kv_heads;
    void* const query = Normals(query_rows * row_.head_dim, 1, row_.type, static_cast<float>(row_.query_factor));
    void* const key = Normals(key_rows * row_.head_dim, 2, row_.type, 1);
    if (row_.drift > 0 || row_.key_sinks > 0) SetFirstColumns(query, key);
    params_.query = query;
    params_.key = key;
    params_.value = Normals(key_rows * row_.ValueHeadDim(), 3, row_.type, 1);
  }

  // A tensor of the layer, for each sequence of the batch.
  void* LayerTensor(const std::string& name) {
    support::NpyArray array;
    const std::string file = "/tests/data/smollm2/layer_" + std::to_string(row_.layer) + "_" + name + ".npy";
    const std::string error = support::ReadNpy(support::SourceFolder().string() + file, array);
    if (!error.empty() || array.shape[1] != row_.query_tokens || array.shape[1] != row_.key_tokens) {
      std::fprintf(stderr, "attention_gpu_bench: %s%s\n", file.c_str(),
                   error.empty() ? ": other lengths" : (": " + error).c_str());
      std::exit(1);
    }
    const std::vector<float> elements(array.elements.begin(), array.elements.end());
    std::vector<std::byte> rounded(elements.size() * kernels::ElementBytes(row_.type));
    kernels::ConvertFromFloat32(row_.type, elements.data(), static_cast<std::int64_t>(elements.size()), rounded.data());
    std::vector<std::byte> batch;
    for (std::int64_t i = 0; i < row_.batch; ++i) batch.insert(batch.end(), rounded.begin(), rounded.end());
    return Upload(batch);
  }

  std::vector<std::int32_t> ShuffledPages() const {
    std::vector<std::int32_t> pages(row_.KeyTokens() / row_.page_tokens);
    std::iota(pages.begin(), pages.end(), 0);
    std::ranges::shuffle(pages, std::mt19937(1));
    return pages;
  }

  // Column 0 of the queries is sqrt(D), which the scale takes back, so that of the keys adds to the logits: of dense batches.
  void SetFirstColumns(void* query, void* key) {
    SetFirstColumn(query, row_.query_heads, row_.QueryTokens(),
                   [this](std::int64_t) { return std::sqrt(static_cast<double>(row_.head_dim)); });
    SetFirstColumn(key, row_.kv_heads, row_.KeyTokens(), [this](std::int64_t token) {
      const std::int64_t position = token % row_.key_tokens;
      const double fallen = static_cast<double>(row_.drift * position) / static_cast<double>(row_.key_tokens);
      return (position == 0 ? static_cast<double>(row_.key_sinks) : 0) - fallen;
    });
  }
  void SetFirstColumn(void* tensor, std::int64_t heads, std::int64_t tokens, const std::function<double(std::int64_t)>& value) {
    const std::int64_t element_bytes = kernels::ElementBytes(row_.type), row_bytes = row_.head_dim * element_bytes;
    std::vector<float> rows(tokens * heads);
    for (std::int64_t i = 0; i < tokens * heads; ++i) rows[i] = static_cast<float>(value(i / heads));
    std::vector<std::byte> column(rows.size() * element_bytes);
    kernels::ConvertFromFloat32(row_.type, rows.data(), tokens * heads, column.data());
    Check(cudaMemcpy2DAsync(tensor, row_bytes, Upload(column), element_bytes, element_bytes, rows.size(),
                            cudaMemcpyDeviceToDevice, Stream()),
          "cudaMemcpy2DAsync");
  }

  void SetOptions() {
    params_.logit_soft_cap = static_cast<float>(row_.soft_cap);
    if (row_.alibi != 0) params_.alibi_slopes = Floats(row_.query_heads, 0.01f);
    if (row_.sink_logits != 0) params_.sink_logits = Floats(row_.query_heads, 0);
    if (row_.bias != 0) {
      params_.bias = static_cast<const float*>(Normals(row_.query_tokens * row_.key_tokens, 4, DataType::kFloat32, 1));
      params_.bias_row_stride_elems = row_.key_tokens;
    }
    if (row_.lse != 0) {
      params_.lse_head_stride_elems = row_.QueryTokens();
      params_.log_sum_exp = static_cast<float*>(Allocate(row_.QueryTokens() * row_.query_heads * 4));
    }
  }
  const float* Floats(std::int64_t count, float value) {
    return static_cast<const float*>(Upload(std::vector<float>(static_cast<std::size_t>(count), value)));
  }

  const Row row_;
  const std::vector<attention::Sequence> sequences_;
  std::vector<std::unique_ptr<GuardedDeviceArray>> arrays_;
  const GuardedDeviceArray* output_ = nullptr;
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
    ridgeline::gpu::AttentionBenchRow row;
    if (ridgeline::gpu::ParseAttentionBenchRow(line, row)) {
      ridgeline::gpu::Measure(row);
    } else {
      std::puts("{\"error\": \"a row is: algorithm type B Sq Sk Hq Hkv D causal [option=value]...\"}");
    }
    std::fflush(stdout);
  }
  return 0;
}
