#include "server/engine/benchmark/pieces.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/status_macros.h"
#include "server/engine/measure/device_trial.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::DataType;

constexpr std::int64_t kFloatBytes = 4;

std::string Scaled(double value, double base, absl::Span<const char* const> prefixes, std::string_view unit) {
  std::size_t i = 0;
  while (value >= base && i + 1 < prefixes.size()) {
    value /= base;
    ++i;
  }
  const int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return absl::StrFormat("%.*f %s%s", decimals, value, prefixes[i], std::string(unit));
}

}  // namespace

std::string AnyDeviceWillDo(const device::DeviceInfo& /*device*/) { return ""; }

std::string KernelName(const PointContext& context, std::string_view what) {
  return absl::StrCat(std::string(what), context.device.info().type == device::DeviceType::kCpu ? "_cpu" : "_cuda");
}

absl::StatusOr<Buffer> RandomFloats(const PointContext& context, std::int64_t elements, std::uint64_t stream) {
  return context.lane.UploadRandom(DataType::kFloat32, elements, context.seed + stream, 0, 1);
}

absl::StatusOr<Buffer> EmptyFloats(const PointContext& context, std::int64_t elements) {
  return context.lane.Allocate(elements * kFloatBytes);
}

measure::DeviceTrial::QueueWork Queue(kernels::microbench::Workload workload) {
  return [workload](device::Lane& lane) { return lane.Run(workload); };
}

absl::StatusOr<std::vector<float>> ReadFloats(device::Lane& lane, const Buffer& buffer, std::int64_t elements) {
  RIDGELINE_ASSIGN_OR_RETURN(const auto host, measure::ReadBack(lane, buffer, elements * kFloatBytes));
  std::vector<float> floats(elements);
  if (elements > 0) std::memcpy(floats.data(), host->data(), elements * kFloatBytes);
  return floats;
}

absl::Status CheckRunTime(const device::DeviceInfo& device, double flops) {
  constexpr double kLongestSeconds = 10;  // at the promised peak, which little reaches
  constexpr double kLeastPeak = 50e9;     // of a device that promises nothing
  const double seconds = flops / std::max(device.theoretical_float32_flops_per_second, kLeastPeak);
  if (seconds <= kLongestSeconds) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("one run is %.3g FLOP, which at the device's float32 peak take %.3g s; a run may be %.3g s long", flops,
                      seconds, kLongestSeconds));
}

absl::Status ExpectNear(std::string_view what, double got, double want, double tolerance) {
  if (std::abs(got - want) <= tolerance) return absl::OkStatus();
  return absl::InternalError(
      absl::StrFormat("%s is %.9g; %.9g is right, within %.3g", std::string(what), got, want, tolerance));
}

const Point* Find(absl::Span<const Point> points, const Include& include) {
  for (const Point& point : points) {
    if (include(point)) return &point;
  }
  return nullptr;
}

const Point* Sibling(absl::Span<const Point> points, const Point& point, std::string_view axis, std::string_view value) {
  const auto is_sibling = [&](const Point& other) {
    const auto& theirs = other.values.all();
    const auto& ours = point.values.all();
    return std::equal(theirs.begin(), theirs.end(), ours.begin(), ours.end(),
                      [&](const auto& a, const auto& b) { return a.first == axis ? a.second == value : a == b; });
  };
  return Find(points, is_sibling);
}

double SpeedUp(const Point& slow, const Point& fast) { return slow.statistics.median / fast.statistics.median; }

Judgement NotEnoughPoints(std::string_view needed) {
  return {.verdict = Verdict::kInconclusive, .explanation = absl::StrCat("that needs ", std::string(needed))};
}

Verdict VerdictOf(bool is_borne_out) { return is_borne_out ? Verdict::kBorneOut : Verdict::kNotBorneOut; }

std::string RateText(double per_second, std::string_view unit) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  return absl::StrCat(Scaled(per_second, 1000, kPrefixes, unit), "/s");
}

std::string TimeText(double seconds) {
  static constexpr const char* kPrefixes[] = {"n", "µ", "m", ""};
  return Scaled(seconds * 1e9, 1000, kPrefixes, "s");
}

std::string SizeText(double bytes) {
  static constexpr const char* kPrefixes[] = {"", "Ki", "Mi", "Gi", "Ti"};
  return Scaled(bytes, 1024, kPrefixes, "B");
}

}  // namespace ridgeline::engine::benchmark
