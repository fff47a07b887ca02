// Time as a parameter, so that deadlines and waits are tested without waiting.
#pragma once

#include "absl/time/time.h"

namespace ridgeline::base {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  virtual absl::Time Now() const = 0;

  // The system's clock; lives for ever.
  static const Clock& Real();
};

}  // namespace ridgeline::base
