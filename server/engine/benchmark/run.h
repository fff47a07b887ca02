// A benchmark on a device of its own: point after point, each built, checked, measured and reported.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/device/device.h"
#include "server/engine/benchmark/axes.h"
#include "server/engine/benchmark/benchmark.h"
#include "server/engine/benchmark/table.h"
#include "server/engine/roofline.h"

namespace ridgeline::engine::benchmark {

// A request that has been checked.
struct Plan {
  const Benchmark* benchmark;  // of the table
  std::vector<AxisValues> points;
  measure::Limits limits;
  bool cold_cache = false;
  std::uint64_t seed = 1;
};

// Errors: NOT_FOUND for a name that the table lacks, UNIMPLEMENTED for what the device lacks, INVALID_ARGUMENT naming the
// field.
absl::StatusOr<Plan> MakePlan(const Request& request, const device::DeviceInfo& device);

struct RunSurroundings {
  device::Device& device;
  const Roofline& roofline;
  const base::Clock& clock;
  EmptyCall empty_call = {};
};

// Tells of progress, of each point, and at last of the summary, whose waiting time and policy are the caller's to add. Nothing
// of the run's memory is left when it returns. `interest` is asked between samples: its error ends the run. Other errors:
// INTERNAL (a result is wrong: the message names the point), UNAVAILABLE. Blocks; not on a thread of the device's.
absl::Status Execute(const Plan& plan, const RunSurroundings& surroundings, device::Lane& lane,
                     absl::FunctionRef<absl::Status()> interest, absl::FunctionRef<void(Event)> tell);

}  // namespace ridgeline::engine::benchmark
