#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
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
#include "server/engine/benchmark/matrix_roofline.h"
#include "server/engine/benchmark/matrix_types.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::microbench::IntensityParams;
using kernels::microbench::kIntensityGranule;
using kernels::microbench::kIntensityWeight;

constexpr std::int64_t kMi = 1 << 20;

// Below, a matrix unit has next to nothing to do.
constexpr std::int64_t kLeastMatrixIntensity = 8;

// So many times below and above its ridge point a type's points must reach, to say where it is. The ridges of matrix units are
// near the sweep's end.
double BesideRidge(const std::string& type) { return FindMatrixType(type) == nullptr ? 4 : 2; }

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

absl::StatusOr<Subject> MakeFloat32(const PointContext& context) {
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

absl::StatusOr<Subject> Make(const PointContext& context) {
  const MatrixTypeRow* const matrix_type = FindMatrixType(context.values.Word("type"));
  if (matrix_type == nullptr) return MakeFloat32(context);
  return MakeMatrixIntensity(context, *matrix_type, FlopsPer16Bytes(context.values) / 16,
                             context.values.Integer("array_bytes"));
}

bool MakesSense(const AxisValues& values) {
  return FindMatrixType(values.Word("type")) == nullptr || FlopsPer16Bytes(values) >= 16 * kLeastMatrixIntensity;
}

// By a point's fastest sample: a roof is the best of many, and a busy machine slows the rest.
double RateOf(const Point& point) { return static_cast<double>(point.report.flops) / point.statistics.minimum; }

// Of one type's points.
struct Ceiling {
  double flops_per_second = 0;
  double least_intensity = std::numeric_limits<double>::infinity();
  double most_intensity = 0;
};

using Ceilings = std::map<std::string, Ceiling>;  // by type

Ceilings FindCeilings(absl::Span<const Point> points) {
  Ceilings ceilings;
  for (const Point& point : points) {
    Ceiling& ceiling = ceilings[point.values.Word("type")];
    ceiling.flops_per_second = std::max(ceiling.flops_per_second, RateOf(point));
    ceiling.least_intensity = std::min(ceiling.least_intensity, point.report.arithmetic_intensity);
    ceiling.most_intensity = std::max(ceiling.most_intensity, point.report.arithmetic_intensity);
  }
  return ceilings;
}

// Leaves the types whose points lie on both sides of the ridge.
void KeepThoseWithARidge(double bandwidth, Ceilings& ceilings) {
  std::erase_if(ceilings, [&](const auto& each) {
    const auto& [type, ceiling] = each;
    const double ridge = ceiling.flops_per_second / bandwidth, beside = BesideRidge(type);
    return ceiling.least_intensity * beside > ridge || ceiling.most_intensity < ridge * beside;
  });
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  double bandwidth = 0;
  for (const Point& point : points) bandwidth = std::max(bandwidth, RateOf(point) / point.report.arithmetic_intensity);
  Ceilings ceilings = FindCeilings(points);
  KeepThoseWithARidge(bandwidth, ceilings);
  if (ceilings.empty()) return NotEnoughPoints("a type with intensities well below and well above its ridge point");
  // How far below its two lines a point lies, at worst.
  double worst = 1;
  for (const Point& point : points) {
    const auto ceiling = ceilings.find(point.values.Word("type"));
    if (ceiling == ceilings.end()) continue;
    const double roof = std::min(ceiling->second.flops_per_second, point.report.arithmetic_intensity * bandwidth);
    worst = std::min(worst, RateOf(point) / roof);
  }
  Judgement judgement{.verdict = VerdictOf(worst > 0.5),
                      .explanation = absl::StrCat("one line is ", RateText(bandwidth, "B"), ", the other"),
                      .findings = {{"bytes_per_second", bandwidth, "the slope: read bandwidth"}}};
  for (const auto& [type, ceiling] : ceilings) {
    const double ridge = ceiling.flops_per_second / bandwidth;
    absl::StrAppendFormat(&judgement.explanation, " %s for %s, and they meet at %.3g FLOP/B;",
                          RateText(ceiling.flops_per_second, "FLOP"), type, ridge);
    judgement.findings.push_back({absl::StrCat(type, "_flops_per_second"), ceiling.flops_per_second, "the ceiling"});
    judgement.findings.push_back({absl::StrCat(type, "_ridge_point_flops_per_byte"), ridge, "where the lines meet"});
  }
  absl::StrAppendFormat(&judgement.explanation, " no point is below %.0f %% of its lines", 100 * worst);
  return judgement;
}

}  // namespace

Benchmark RooflineSweep(device::DeviceType type) {
  // Beyond the caches of either.
  const std::int64_t array_bytes = (type == device::DeviceType::kCpu ? 64 : 512) * kMi;
  std::vector<std::string> types = {"float32"};
  if (type == device::DeviceType::kCuda) {
    for (const MatrixTypeRow& row : MatrixTypes()) types.emplace_back(row.name);
  }
  const std::vector<std::string> intensities = {"1/16", "1/8", "1/4", "1/2", "1",   "2",   "4",   "8",
                                                "16",   "32",  "64",  "128", "256", "512", "1024"};
  return {.name = "roofline",
          .claim =
              "What limits a kernel is the smaller of two: bandwidth times its arithmetic intensity, and the arithmetic "
              "peak. Raising the intensity is free until the ridge point, and buys nothing after it. The faster a type's "
              "arithmetic, the further right its ridge. float32 is computed by multiply-adds, what a GPU has beside it by its "
              "matrix unit (wgmma), from 8 FLOP for each byte.",
          .axes = {WordAxis("type", "what computes, and with which inputs", types),
                   WordAxis("flops_per_byte", "arithmetic intensity: FLOP for each byte read", intensities),
                   IntegerAxis("array_bytes", "bytes that are read once", 16 * 1024, std::int64_t{1} << 36, {array_bytes},
                               kIntensityGranule * 4)},
          .plot = {.x_axis = "flops_per_byte", .y = "flops_per_second"},
          .unsupported_reason = &AnyDeviceWillDo,
          .makes_sense = &MakesSense,
          .make_subject = &Make,
          .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
