// Times fused operations by themselves. Reads rows from standard input and answers each with a line of JSON, so that a driver
// can put a rival's measurement between any two of ours (fused_bench.py does):
//
//   operation mode type rows columns     e.g. layer_norm fused bfloat16 16384 4096
//
// `copy` is cudaMemcpy from device to device of a tensor of that size. Tensors are random normals, larger than the caches in
// every row that the bench asks for. `burst_ms` is the median of 40 back-to-back launches after a quarter of a second of rest
// and five warm-ups. Heads of rope have 128 elements.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/common/data_type.h"
#include "kernels/fused/cost.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/fused_cuda.h"
#include "kernels/fused/op_info.h"
#include "kernels/microbench/microbench_cuda.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/timing.h"

namespace ridgeline::gpu {
namespace {

namespace fused = kernels::fused;
using fused::FusedParams;
using fused::FusedShape;
using fused::Mode;
using kernels::DataType;

constexpr auto kRest = std::chrono::milliseconds(250);
constexpr int kWarmUps = 5;
constexpr int kLaunches = 40;

struct Row {
  bool is_copy = false;
  Mode mode = Mode::kFused;
  FusedShape shape;
};

bool ParseRow(const std::string& line, Row& row) {
  std::string op, mode, type;
  std::istringstream words(line);
  words >> op >> mode >> type >> row.shape.num_rows >> row.shape.row_elems;
  if (!words || (mode != Name(Mode::kFused) && mode != Name(Mode::kUnfused))) return false;
  row.mode = mode == Name(Mode::kFused) ? Mode::kFused : Mode::kUnfused;
  bool known = row.is_copy = op == "copy";
  for (int i = 0; i < fused::kNumOps; ++i) {
    if (op != Name(static_cast<fused::Op>(i))) continue;
    row.shape.op = static_cast<fused::Op>(i);
    known = true;
  }
  const fused::OpInfo& info = InfoOf(row.shape.op);
  row.shape.has_weight = info.weight != fused::Use::kNone;
  row.shape.has_bias = info.bias != fused::Use::kNone;
  row.shape.dropout = {.probability = 0.1, .seed = 1, .offset = 0};
  row.shape.rope = {.head_dim = 128, .rotary_dim = 128};
  for (const DataType candidate : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    row.shape.data_type = candidate;
    if (type == Name(candidate)) return known && !info.appends && WhyNot(row.shape).empty();
  }
  return false;
}

// A problem in the device's memory.
class Problem {
 public:
  explicit Problem(const Row& row) : row_(row), workspace_(fused::WorkspaceBytes(row.shape, row.mode)) {
    const FusedShape& shape = row.shape;
    const fused::OpInfo& info = InfoOf(shape.op);
    const std::int64_t elements = shape.num_rows * shape.row_elems;
    params_.shape = shape;
    params_.input = Fill(elements);
    if (info.other != fused::Use::kNone) params_.other = Fill(elements);
    if (shape.has_weight) params_.weight = Fill(shape.row_elems);
    if (shape.has_bias) params_.bias = Fill(shape.row_elems);
    params_.output = Add(elements).data();
    if (info.residual_output != fused::Use::kNone) params_.residual_output = Add(elements).data();
    params_.workspace = workspace_.data();
  }

  void Launch() const {
    if (row_.is_copy) {
      const std::int64_t bytes = row_.shape.num_rows * row_.shape.row_elems * ElementBytes(row_.shape.data_type);
      return Check(cudaMemcpyAsync(params_.output, params_.input, bytes, cudaMemcpyDeviceToDevice, Stream()),
                   "cudaMemcpyAsync");
    }
    const fused::CudaLimits limits = {.compute_capability = Limits().compute_capability, .num_sms = Limits().num_sms};
    Check(fused::LaunchFused(params_, row_.mode, limits, Stream()), Name(row_.shape.op));
  }

  std::int64_t bytes() const {
    if (row_.is_copy) return 2 * row_.shape.num_rows * row_.shape.row_elems * ElementBytes(row_.shape.data_type);
    return CountCost(row_.shape, row_.mode).bytes;
  }

 private:
  const GuardedDeviceArray& Add(std::int64_t elements) {
    arrays_.push_back(std::make_unique<GuardedDeviceArray>(elements * ElementBytes(row_.shape.data_type)));
    return *arrays_.back();
  }
  const void* Fill(std::int64_t elements) {
    const GuardedDeviceArray& array = Add(elements);
    Check(kernels::microbench::LaunchFillNormal(row_.shape.data_type, elements, arrays_.size(), 0, 1, array.data(), Stream()),
          "LaunchFillNormal");
    return array.data();
  }

  const Row row_;
  GuardedDeviceArray workspace_;
  std::vector<std::unique_ptr<GuardedDeviceArray>> arrays_;
  FusedParams params_;
};

// Median time of one launch, queued behind a pause, so that launches follow each other without waiting for the host.
double MedianMilliseconds(const Problem& problem) {
  const std::vector<TimedEvent> starts(kLaunches), ends(kLaunches);
  {
    const StreamHold hold;
    for (int i = 0; i < kWarmUps; ++i) problem.Launch();
    for (int i = 0; i < kLaunches; ++i) {
      starts[i].Record();
      problem.Launch();
      ends[i].Record();
    }
  }
  std::vector<double> milliseconds;
  for (int i = 0; i < kLaunches; ++i) milliseconds.push_back(ends[i].MillisecondsSince(starts[i]));
  std::ranges::nth_element(milliseconds, milliseconds.begin() + kLaunches / 2);
  return milliseconds[kLaunches / 2];
}

void Measure(const Row& row) {
  const Problem problem(row);
  problem.Launch();
  Check(cudaStreamSynchronize(Stream()), "cudaStreamSynchronize");
  std::this_thread::sleep_for(kRest);
  const double burst = MedianMilliseconds(problem);
  std::printf("{\"burst_ms\": %.6f, \"bytes\": %lld}\n", burst, static_cast<long long>(problem.bytes()));
}

}  // namespace
}  // namespace ridgeline::gpu

int main() {
  if (const std::string reason = ridgeline::gpu::WhyNoGpu(); !reason.empty()) {
    std::fprintf(stderr, "fused_gpu_bench: %s\n", reason.c_str());
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    ridgeline::gpu::Row row;
    if (ridgeline::gpu::ParseRow(line, row)) {
      ridgeline::gpu::Measure(row);
    } else {
      std::puts("{\"error\": \"a row is: operation mode type rows columns\"}");
    }
    std::fflush(stdout);
  }
  return 0;
}
