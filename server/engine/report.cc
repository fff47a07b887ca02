#include "server/engine/report.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace ridgeline::engine {

namespace {

void FillRates(ExecutionReport& report) {
  const auto flops = static_cast<double>(report.flops);
  const auto bytes = static_cast<double>(report.bytes);
  const double kernel_seconds = absl::ToDoubleSeconds(report.kernel_time);
  report.arithmetic_intensity = bytes > 0 ? flops / bytes : 0;
  report.flops_per_second = kernel_seconds > 0 ? flops / kernel_seconds : 0;
  report.bytes_per_second = kernel_seconds > 0 ? bytes / kernel_seconds : 0;
}

struct RoofSeconds {
  double memory;
  double compute;
};

// Nothing if the peaks are not known.
std::optional<RoofSeconds> SecondsAtTheRoofs(const Roofline& roofline, kernels::DataType data_type, std::int64_t flops,
                                             std::int64_t bytes) {
  const ComputeRoof* compute_roof = roofline.FindComputeRoof(data_type);
  if (compute_roof == nullptr || compute_roof->flops_per_second <= 0 || roofline.bytes_per_second <= 0) return std::nullopt;
  return RoofSeconds{.memory = static_cast<double>(bytes) / roofline.bytes_per_second,
                     .compute = static_cast<double>(flops) / compute_roof->flops_per_second};
}

}  // namespace

void TakeShare(std::int64_t flops, std::int64_t bytes, ExecutionReport& report) {
  report.flops = flops;
  report.bytes = bytes;
  FillRates(report);
}

absl::Duration RoofTime(const Roofline& roofline, kernels::DataType data_type, std::int64_t flops, std::int64_t bytes) {
  const std::optional<RoofSeconds> seconds = SecondsAtTheRoofs(roofline, data_type, flops, bytes);
  return seconds.has_value() ? absl::Seconds(std::max(seconds->memory, seconds->compute)) : absl::ZeroDuration();
}

void PlaceOnRoofline(const Roofline& roofline, kernels::DataType data_type, ExecutionReport& report) {
  FillRates(report);
  const std::optional<RoofSeconds> seconds = SecondsAtTheRoofs(roofline, data_type, report.flops, report.bytes);
  if (!seconds.has_value()) return;
  const double roof_seconds = std::max(seconds->memory, seconds->compute);
  if (roof_seconds <= 0) return;
  report.bound = seconds->memory >= seconds->compute ? Bound::kMemory : Bound::kCompute;
  const double kernel_seconds = absl::ToDoubleSeconds(report.kernel_time);
  if (kernel_seconds > 0) report.roof_fraction = roof_seconds / kernel_seconds;
}

}  // namespace ridgeline::engine
