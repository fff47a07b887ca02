// The loop that every measurement goes through: warm up, take samples, stop when they agree or time is up.
//
//   warm-up ─► round of samples ─► clocks held down? discard the round ─► agree, and long enough? ─yes─► done
//                  ▲                                                       │no       time is up ────────► done, and says so
//                  └───────────────────────────────────────────────────────┘
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"

namespace ridgeline::engine::measure {

// When a measurement ends. 0 <= min_time <= max_time; warm_up >= 0.
struct Limits {
  absl::Duration warm_up = absl::Milliseconds(10);  // the first run, which is checked, counts
  absl::Duration min_time = absl::Milliseconds(20);
  absl::Duration max_time = absl::Seconds(1);  // at least one sample is taken, however long
  double max_relative_noise = 0.005;           // see Statistics::relative_noise
};

enum class StopReason { kQuiet, kTimeLimit };

struct Samples {
  std::vector<double> seconds;   // of one run of the work, each the mean over a sample's repetitions
  std::int64_t repetitions = 1;  // runs in one sample: enough to make the clock's steps and its reading small
  std::int64_t discarded = 0;    // samples taken while the clocks were held down
  bool throttled = false;        // the clocks were held down all the time: the samples are from then
  StopReason stop_reason = StopReason::kTimeLimit;
};

// What is measured, and where.
class Trial {
 public:
  virtual ~Trial() = default;

  // Runs the work so often, one after the other; the device's time for all of it.
  virtual absl::StatusOr<absl::Duration> TakeSample(std::int64_t repetitions) = 0;

  // 1 where each run needs preparation (a cold cache), or does not bear company.
  virtual std::int64_t max_repetitions() const { return std::int64_t{1} << 20; }

  // Whether the clocks are held down now.
  virtual bool IsThrottled() { return false; }

  // Called between samples: an error ends the measurement with that error.
  virtual absl::Status CheckInterest() { return absl::OkStatus(); }
};

// The work has run once already, which took `first_run` of the device's time.
absl::StatusOr<Samples> TakeSamples(Trial& trial, absl::Duration first_run, const Limits& limits, const base::Clock& clock);

}  // namespace ridgeline::engine::measure
