#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/microbench/softmax_passes.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::microbench::kSoftmaxGranule;
using kernels::microbench::SoftmaxPasses;
using kernels::microbench::SoftmaxPassesParams;

constexpr char kName[] = "online_softmax";
constexpr std::int64_t kCpuElements = 16 << 20, kCudaElements = 64 << 20;

bool IsCpu(const PointContext& context) { return context.device.info().type == device::DeviceType::kCpu; }

// What one core can hold near it: half of a second-level cache. Of a multiprocessor: a block's shared memory.
std::int64_t FastMemoryBytes(const PointContext& context) {
  constexpr std::int64_t kCpuBytes = 512 << 10, kReservedBytes = 2 << 10;
  return IsCpu(context) ? kCpuBytes : context.device.info().l1_cache_bytes - kReservedBytes;
}

struct Arrays {
  Buffer input, output, scratch;
};

SoftmaxPasses PassesOf(const std::string& name) {
  if (name == "three") return SoftmaxPasses::kThree;
  return name == "two" ? SoftmaxPasses::kTwo : SoftmaxPasses::kOne;
}

std::int64_t Reads(SoftmaxPasses passes) { return passes == SoftmaxPasses::kThree ? 3 : passes == SoftmaxPasses::kTwo ? 2 : 1; }

absl::Status CheckRow(const float* input, const float* output, std::int64_t columns) {
  const double maximum = *std::max_element(input, input + columns);
  double sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(input[c] - maximum);
  for (std::int64_t c = 0; c < columns; ++c) {
    const double want = std::exp(input[c] - maximum) / sum;
    const double tolerance = 1e-5 * want + 1e-30;  // float32's exponential, sum and division, each within a few epsilons
    if (!(std::abs(output[c] - want) <= tolerance)) return ExpectNear(absl::StrCat("column ", c), output[c], want, tolerance);
  }
  return absl::OkStatus();
}

// The first and the last row of each eighth.
absl::Status Check(device::Lane& lane, const Arrays& arrays, const SoftmaxPassesParams& params) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> input, ReadFloats(lane, arrays.input, params.rows * params.columns));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> output, ReadFloats(lane, arrays.output, params.rows * params.columns));
  const std::int64_t step = std::max<std::int64_t>(1, params.rows / 8);
  for (std::int64_t row = 0; row < params.rows; row += step) {
    for (const std::int64_t each : {row, std::min(row + step, params.rows) - 1}) {
      const std::int64_t at = each * params.columns;
      RIDGELINE_RETURN_IF_ERROR(CheckRow(input.data() + at, output.data() + at, params.columns));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  SoftmaxPassesParams params{};
  params.passes = PassesOf(context.values.Word("passes"));
  params.columns = context.values.Integer("columns");
  params.rows = std::max<std::int64_t>(1, (IsCpu(context) ? kCpuElements : kCudaElements) / params.columns);
  if (params.passes == SoftmaxPasses::kOne && params.columns * 4 > FastMemoryBytes(context)) {
    return absl::InvalidArgumentError(absl::StrCat("a row of ", SizeText(static_cast<double>(params.columns * 4)),
                                                   " does not fit into a core's fast memory, of which ",
                                                   SizeText(static_cast<double>(FastMemoryBytes(context))), " are used"));
  }
  const std::int64_t elements = params.rows * params.columns;
  auto arrays = std::make_shared<Arrays>();
  RIDGELINE_ASSIGN_OR_RETURN(arrays->input, RandomFloats(context, elements));
  RIDGELINE_ASSIGN_OR_RETURN(arrays->output, EmptyFloats(context, elements));
  if (params.passes == SoftmaxPasses::kOne && IsCpu(context)) {
    RIDGELINE_ASSIGN_OR_RETURN(arrays->scratch, EmptyFloats(context, context.device.info().compute_units * params.columns));
  }
  params.input = static_cast<const float*>(arrays->input.data());
  params.output = static_cast<float*>(arrays->output.data());
  params.scratch = static_cast<float*>(arrays->scratch.data());
  return Subject{.kernel = absl::StrCat(KernelName(context, "softmax"), "[passes=", Reads(params.passes), "]"),
                 .flops = 4 * elements,  // subtract, exponential as one, add, scale
                 .bytes = (Reads(params.passes) + 1) * elements * 4,
                 .workspace_bytes = arrays->scratch.size_bytes(),
                 .queue = [params, arrays](device::Lane& lane) { return lane.Run(params); },
                 .check = [&lane = context.lane, params, arrays] { return Check(lane, *arrays, params); },
                 .figures =
                     [elements](double seconds) {
                       return std::map<std::string, double>{{"elements_per_second", static_cast<double>(elements) / seconds}};
                     }};
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  std::int64_t longest = 0;
  for (const Point& point : points) longest = std::max(longest, point.values.Integer("columns"));
  const auto at = [&](const std::string& passes) {
    return Find(points, [=](const Point& point) {
      return point.values.Word("passes") == passes && point.values.Integer("columns") == longest;
    });
  };
  const Point* const three = at("three");
  const Point* const two = at("two");
  if (three == nullptr || two == nullptr) return NotEnoughPoints("two and three passes over rows of one length");
  const double gain = SpeedUp(*three, *two);
  return {
      .verdict = VerdictOf(gain > 1.05),
      .explanation = absl::StrFormat("over rows of %d elements two passes are %.3g times as fast as three; by bytes it would "
                                     "be 1.33",
                                     longest, gain),
      .findings = {{"two_over_three_passes", gain, "speed-up on the longest rows"}}};
}

Benchmark OnCpu() {
  return {.name = kName,
          .claim =
              "Softmax need not read its row three times: with a running maximum that rescales the sum (online) two reads "
              "do, and one if the row stays in fast memory. It pays where a row is longer than the caches. 16 Mi elements.",
          .axes = {WordAxis("passes", "reads of the row", {"three", "two", "one"}),
                   IntegerAxis("columns", "elements of a row", kSoftmaxGranule, std::int64_t{1} << 26,
                               {1024, 16384, 131072, 1048576, 4194304}, kSoftmaxGranule)},
          .plot = {.x_axis = "columns", .y = "elements_per_second"},
          .unsupported_reason = &AnyDeviceWillDo,
          .make_subject = &Make,
          .judge = &Judge};
}

Benchmark OnCuda() {
  Benchmark benchmark = OnCpu();
  benchmark.claim =
      "Softmax need not read its row three times: with a running maximum that rescales the sum (online) two reads do, and one "
      "if the row stays in shared memory. It pays where the rows under way, two on each multiprocessor, are larger than the L2 "
      "cache. A block a row, 64 Mi elements.";
  benchmark.axes[1] = IntegerAxis("columns", "elements of a row", kSoftmaxGranule, std::int64_t{1} << 26,
                                  {1024, 8192, 32768, 131072, 262144}, kSoftmaxGranule);
  return benchmark;
}

}  // namespace

Benchmark OnlineSoftmax(device::DeviceType type) { return type == device::DeviceType::kCpu ? OnCpu() : OnCuda(); }

}  // namespace ridgeline::engine::benchmark
