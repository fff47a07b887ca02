#include "server/engine/report.h"

#include <algorithm>

#include "absl/time/time.h"

namespace ridgeline::engine {

void PlaceOnRoofline(const Roofline& roofline, kernels::DataType data_type, ExecutionReport& report) {
  const auto flops = static_cast<double>(report.flops);
  const auto bytes = static_cast<double>(report.bytes);
  const double kernel_seconds = absl::ToDoubleSeconds(report.kernel_time);
  if (bytes > 0) report.arithmetic_intensity = flops / bytes;
  if (kernel_seconds > 0) {
    report.flops_per_second = flops / kernel_seconds;
    report.bytes_per_second = bytes / kernel_seconds;
  }

  const ComputeRoof* compute_roof = roofline.FindComputeRoof(data_type);
  if (compute_roof == nullptr || compute_roof->flops_per_second <= 0 || roofline.bytes_per_second <= 0) return;
  const double memory_seconds = bytes / roofline.bytes_per_second;
  const double compute_seconds = flops / compute_roof->flops_per_second;
  const double roof_seconds = std::max(memory_seconds, compute_seconds);
  if (roof_seconds <= 0) return;
  report.bound = memory_seconds >= compute_seconds ? Bound::kMemory : Bound::kCompute;
  if (kernel_seconds > 0) report.roof_fraction = roof_seconds / kernel_seconds;
}

}  // namespace ridgeline::engine
