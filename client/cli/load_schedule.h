// Which request is to be sent when: the closed and the open loop.
#pragma once

#include <cstdint>
#include <optional>
#include <random>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/cli/work_mix.h"

namespace ridgeline::cli {

// Times are seconds on the run's own clock: the warm-up begins at -warm_up, measuring at 0.
struct LoadTiming {
  double warm_up_seconds = 0;
  double duration_seconds = 0;
  // Open loop: how long after the end a request intended before it may still be sent.
  double drain_seconds = 0;
  // Open loop: how many a second; none: a closed loop.
  std::optional<double> rate_per_second;
};

// Arrivals of many independent callers: the gaps are exponentially distributed.
class PoissonArrivals {
 public:
  PoissonArrivals(double rate_per_second, double start_seconds) : gap_(rate_per_second), time_seconds_(start_seconds) {}

  double Next(std::mt19937_64& random) { return time_seconds_ += gap_(random); }

 private:
  std::exponential_distribution<double> gap_;
  double time_seconds_;
};

// Threads may share one. The same seed gives the same work in the same order, and the same arrivals.
class LoadSchedule {
 public:
  LoadSchedule(const LoadTiming& timing, WorkMix mix, std::uint64_t seed);

  struct Item {
    double intended_seconds = 0;  // when to send it; latency counts from here
    Work work;
  };
  // The next request for whoever is free; nothing when the load is over. The closed loop intends it for `now_seconds`; the open
  // loop's intended times don't depend on when it is asked, so that a slow server doesn't slow the callers down. What
  // the warm-up leaves unsent is dropped.
  std::optional<Item> Next(double now_seconds);

  // Open loop: what was intended after the warm-up and before the end and never handed out. Call it once, after the last
  // Next().
  std::int64_t CountUnsent();

 private:
  std::optional<double> NextIntended(double now_seconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const LoadTiming timing_;
  absl::Mutex mutex_;
  WorkMix mix_ ABSL_GUARDED_BY(mutex_);
  // Two generators: what is drawn for the work doesn't move the arrivals.
  std::mt19937_64 work_random_ ABSL_GUARDED_BY(mutex_);
  std::mt19937_64 arrival_random_ ABSL_GUARDED_BY(mutex_);
  PoissonArrivals arrivals_ ABSL_GUARDED_BY(mutex_);
  double next_arrival_seconds_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ridgeline::cli
