#include "server/engine/report.h"

#include <algorithm>

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

}  // namespace

void TakeShare(std::int64_t flops, std::int64_t bytes, ExecutionReport& report) {
  report.flops = flops;
  report.bytes = bytes;
  FillRates(report);
}

void PlaceOnRoofline(const Roofline& roofline, kernels::DataType data_type, ExecutionReport& report) {
  FillRates(report);

  const ComputeRoof* compute_roof = roofline.FindComputeRoof(data_type);
  if (compute_roof == nullptr || compute_roof->flops_per_second <= 0 || roofline.bytes_per_second <= 0) return;
  const double memory_seconds = static_cast<double>(report.bytes) / roofline.bytes_per_second;
  const double compute_seconds = static_cast<double>(report.flops) / compute_roof->flops_per_second;
  const double roof_seconds = std::max(memory_seconds, compute_seconds);
  if (roof_seconds <= 0) return;
  report.bound = memory_seconds >= compute_seconds ? Bound::kMemory : Bound::kCompute;
  const double kernel_seconds = absl::ToDoubleSeconds(report.kernel_time);
  if (kernel_seconds > 0) report.roof_fraction = roof_seconds / kernel_seconds;
}

}  // namespace ridgeline::engine
