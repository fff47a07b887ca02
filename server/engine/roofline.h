// The device's measured roofline: peaks taken once and kept in a cache file, keyed by the device.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/common/data_type.h"
#include "server/device/device.h"

namespace ridgeline::engine {

struct ComputeRoof {
  kernels::DataType data_type;
  double flops_per_second = 0;              // measured
  double theoretical_flops_per_second = 0;  // 0 = unknown
};

struct Roofline {
  std::string device;
  double bytes_per_second = 0;              // measured, read + written
  double theoretical_bytes_per_second = 0;  // 0 = unknown
  std::vector<ComputeRoof> compute_roofs;   // float32, float16, bfloat16
  absl::Time measure_time;
  bool cached = false;  // read from the file

  // The roof for inputs of a type; null if it was not measured.
  const ComputeRoof* FindComputeRoof(kernels::DataType data_type) const;
};

// Measures copies far larger than the last-level cache and matrix products of every type on lane 0, a few samples each, best
// taken: about two seconds on a small CPU. Blocks; for start-up only.
absl::StatusOr<Roofline> MeasureRoofline(device::Device& device);

// Reads the cache file, or measures and writes it (atomically: write aside, rename). A file that is missing, damaged, or of
// another device or version is measured anew; one that cannot be written is a log line, not an error. Empty path: always
// measure.
absl::StatusOr<Roofline> LoadOrMeasureRoofline(device::Device& device, const std::string& cache_path);

}  // namespace ridgeline::engine
