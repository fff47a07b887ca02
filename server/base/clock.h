// Time as a parameter, so that deadlines and waits are tested without waiting.
#pragma once

#include "absl/time/time.h"

namespace ridgeline::base {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  virtual absl::Time Now() const = 0;

  // The process's SteadyClock; lives for ever. Leases, deadlines and durations are by this one.
  static const Clock& Real();
};

// Begins at a time and goes on as a steady clock does. Whoever sets the system's clock afterwards, or corrects it, ends no
// lease and moves no deadline.
class SteadyClock final : public Clock {
 public:
  // `steady` is the time since some moment, and never goes back.
  SteadyClock(absl::Time begin, absl::Duration (*steady)()) : offset_(begin - steady()), steady_(steady) {}

  absl::Time Now() const override { return offset_ + steady_(); }

 private:
  const absl::Time offset_;  // at which `steady` would have been zero
  absl::Duration (*const steady_)();
};

// What the system's clock says, which may be set at any time: for people to read, and for gRPC, which takes deadlines so and
// keeps them on a steady clock of its own.
absl::Time SystemTime();

}  // namespace ridgeline::base
