// What a request cost, and where it stands on the device's roofline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cost.h"
#include "server/engine/roofline.h"

namespace ridgeline::engine {

enum class Bound { kUnknown, kMemory, kCompute };

struct KernelPhase {
  std::string name;
  absl::Duration time;
};

// As ridgeline.v1.ExecutionReport, field by field.
struct ExecutionReport {
  std::string device;
  std::string kernel;
  std::string kernel_reason;
  std::optional<kernels::attention::Algorithm> algorithm;  // of attention
  int batch_requests = 1;
  absl::Duration queue_time;
  absl::Duration upload_time;
  absl::Duration kernel_time;
  absl::Duration download_time;
  std::int64_t flops = 0;
  std::int64_t bytes = 0;
  double flops_per_second = 0;
  double bytes_per_second = 0;
  double arithmetic_intensity = 0;  // flops / bytes; 0 if bytes is 0
  Bound bound = Bound::kUnknown;
  double roof_fraction = 0;  // 0 = unknown
  std::int64_t workspace_bytes = 0;
  std::vector<KernelPhase> kernel_phases;
};

// The least time that so much work takes at the device's measured peaks; zero if they are not known.
absl::Duration RoofTime(const Roofline& roofline, kernels::DataType data_type, std::int64_t flops, std::int64_t bytes);

// Fills rates, intensity, bound and roof_fraction from flops, bytes, kernel_time and the measured roofline. A kernel_time of
// zero leaves the rates 0. Work is memory-bound when bytes / peak bandwidth >= flops / peak rate; its roof is the larger of
// both times.
void PlaceOnRoofline(const Roofline& roofline, kernels::DataType data_type, ExecutionReport& report);

// Turns the report of a launch that several requests shared into that of one of them, whose work was so much: rates follow from
// its own work; bound and roof_fraction stay those of the launch, since the device was never given the share alone.
void TakeShare(std::int64_t flops, std::int64_t bytes, ExecutionReport& report);

}  // namespace ridgeline::engine
