#include "server/base/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace ridgeline::base {
namespace {

absl::Duration SinceBoot() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

}  // namespace

const Clock& Clock::Real() {
  static const SteadyClock* const clock = new SteadyClock(SystemTime(), SinceBoot);
  return *clock;
}

absl::Time SystemTime() { return absl::Now(); }

}  // namespace ridgeline::base
