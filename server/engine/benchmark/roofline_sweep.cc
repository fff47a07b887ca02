#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/microbench/intensity.h"
#include "server/base/check.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::microbench::IntensityParams;
using kernels::microbench::kIntensityGranule;
using kernels::microbench::kIntensityWeight;

constexpr std::int64_t kMi = 1 << 20;

struct Arrays {
  Buffer source, slice_sums;
};

// FLOPs for each 16 bytes, 16 times the intensity: a power of two.
std::int64_t FlopsPer16Bytes(const AxisValues& values) {
  const std::string& intensity = values.Word("flops_per_byte");
  std::int64_t whole = 0;
  if (absl::SimpleAtoi(intensity, &whole)) return 16 * whole;
  RIDGELINE_CHECK(absl::SimpleAtoi(intensity.substr(2), &whole));  // "1/16"
  return 16 / whole;
}

// Below half a FLOP per byte there is none for each element: elements are joined first.
IntensityParams ParamsOf(std::int64_t flops_per_16_bytes) {
  IntensityParams params{};
  params.adds_only = flops_per_16_bytes == 1;
  params.join = flops_per_16_bytes <= 2 ? 4 : flops_per_16_bytes == 4 ? 2 : 1;
  params.multiply_adds = flops_per_16_bytes <= 8 ? 0 : flops_per_16_bytes / 8 - 1;
  return params;
}

// y = m * (2 - 2^-multiply_adds), by the sum of the geometric series.
absl::Status Check(device::Lane& lane, const Arrays& arrays, const IntensityParams& params, int num_slices) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> source, ReadFloats(lane, arrays.source, params.elements));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> sums, ReadFloats(lane, arrays.slice_sums, num_slices));
  const std::int64_t span = kIntensityGranule / params.join;
  double want = 0, magnitude = 0;
  for (std::int64_t granule = 0; granule < params.elements; granule += kIntensityGranule) {
    for (std::int64_t i = 0; i < span; ++i) {
      float joined = source[granule + i];
      for (int j = 1; j < params.join; ++j) joined = std::max(joined, source[granule + i + j * span]);
      want += joined;
      magnitude += std::abs(joined);
    }
  }
  const double factor = (2 - std::exp2(-static_cast<double>(params.multiply_adds))) *
                        (params.adds_only ? 1 : static_cast<double>(kIntensityWeight));
  double got = 0;
  for (const float sum : sums) got += sum;
  return ExpectNear("the sum", got, want * factor, 1e-5 * magnitude * factor);
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  const std::int64_t flops_per_16_bytes = FlopsPer16Bytes(context.values);
  const std::int64_t bytes = context.values.Integer("array_bytes");
  IntensityParams params = ParamsOf(flops_per_16_bytes);
  params.elements = bytes / 4;
  const int num_slices = context.device.info().compute_units;
  auto arrays = std::make_shared<Arrays>();
  RIDGELINE_ASSIGN_OR_RETURN(arrays->source, RandomFloats(context, params.elements));
  RIDGELINE_ASSIGN_OR_RETURN(arrays->slice_sums, EmptyFloats(context, num_slices));
  params.source = static_cast<const float*>(arrays->source.data());
  params.slice_sums = static_cast<float*>(arrays->slice_sums.data());
  return Subject{
      .kernel =
          absl::StrCat(KernelName(context, "intensity"), "[join=", params.join, ",multiply_adds=", params.multiply_adds, "]"),
      .flops = bytes / 16 * flops_per_16_bytes,
      .bytes = bytes,
      .queue = [params, arrays](device::Lane& lane) { return lane.Run(params); },
      .check = [&lane = context.lane, params, arrays, num_slices] { return Check(lane, *arrays, params, num_slices); }};
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  double bandwidth = 0, rate = 0;
  double least = points.front().report.arithmetic_intensity, most = least;
  // By each point's fastest sample: a roof is the best of many, and a busy machine slows the rest.
  const auto rate_of = [](const Point& point) { return static_cast<double>(point.report.flops) / point.statistics.minimum; };
  for (const Point& point : points) {
    bandwidth = std::max(bandwidth, rate_of(point) / point.report.arithmetic_intensity);
    rate = std::max(rate, rate_of(point));
    least = std::min(least, point.report.arithmetic_intensity);
    most = std::max(most, point.report.arithmetic_intensity);
  }
  const double ridge = rate / bandwidth;
  if (least * 4 > ridge || most < ridge * 4) return NotEnoughPoints("intensities well below and well above the ridge point");
  // How far below the two lines the points lie, at worst.
  double worst = 1;
  for (const Point& point : points) {
    const double roof = std::min(rate, point.report.arithmetic_intensity * bandwidth);
    worst = std::min(worst, rate_of(point) / roof);
  }
  Judgement judgement{
      .verdict = VerdictOf(worst > 0.5),
      .explanation = absl::StrFormat("two lines, %s and %s, meet at %.3g FLOP/B; no point is below %.0f %% of them",
                                     RateText(bandwidth, "B"), RateText(rate, "FLOP"), ridge, 100 * worst)};
  judgement.findings = {{"bytes_per_second", bandwidth, "the slope: read bandwidth"},
                        {"flops_per_second", rate, "the ceiling: float32 fused multiply-adds"},
                        {"ridge_point_flops_per_byte", ridge, "where they meet"}};
  return judgement;
}

}  // namespace

Benchmark RooflineSweep(device::DeviceType type) {
  // Beyond the caches of either.
  const std::int64_t array_bytes = (type == device::DeviceType::kCpu ? 64 : 512) * kMi;
  const std::vector<std::string> intensities = {"1/16", "1/8", "1/4", "1/2", "1",   "2",   "4",   "8",
                                                "16",   "32",  "64",  "128", "256", "512", "1024"};
  return {.name = "roofline",
          .claim =
              "What limits a kernel is the smaller of two: bandwidth times its arithmetic intensity, and the arithmetic "
              "peak. Raising the intensity is free until the ridge point, and buys nothing after it.",
          .axes = {WordAxis("flops_per_byte", "arithmetic intensity: FLOP for each byte read", intensities),
                   IntegerAxis("array_bytes", "bytes that are read once", 16 * 1024, std::int64_t{1} << 36, {array_bytes},
                               kIntensityGranule * 4)},
          .plot = {.x_axis = "flops_per_byte", .y = "flops_per_second"},
          .unsupported_reason = &AnyDeviceWillDo,
          .make_subject = &Make,
          .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
