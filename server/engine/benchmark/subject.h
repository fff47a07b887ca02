// One point of a benchmark, ready to be measured.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "server/device/device.h"
#include "server/engine/benchmark/axes.h"
#include "server/engine/benchmark/benchmark.h"
#include "server/engine/measure/device_trial.h"

namespace ridgeline::engine::benchmark {

// Where a point is measured: the device is the benchmark's alone.
struct PointContext {
  device::Device& device;
  device::Lane& lane;
  const AxisValues& values;
  std::uint64_t seed;
  EmptyCall empty_call = {};  // may be null
};

// The closures own the point's buffers.
struct Subject {
  std::string kernel;  // what runs, with its configuration
  std::string kernel_reason = {};
  std::optional<kernels::attention::Algorithm> algorithm = {};
  kernels::DataType data_type = kernels::DataType::kFloat32;  // of the inputs: which compute roof there is
  bool has_roof = true;                                       // false: none was measured for what computes here
  // What one run must compute and move, by formula.
  std::int64_t flops = 0;
  std::int64_t bytes = 0;
  std::int64_t workspace_bytes = 0;

  // Queues one run on the lane.
  measure::DeviceTrial::QueueWork queue = {};
  // Instead of `queue`, for what the host's clock must time: runs so often, and says how long it took.
  absl::AnyInvocable<absl::StatusOr<absl::Duration>(std::int64_t repetitions)> run_and_time = {};

  // After the first run: whether its results are right. INTERNAL if they are not.
  absl::AnyInvocable<absl::Status()> check = {};
  // What follows from the median time of one run; may be null.
  std::function<std::map<std::string, double>(double seconds)> figures = {};
};

}  // namespace ridgeline::engine::benchmark
