#include "client/cpp/retry.h"

#include <algorithm>
#include <cmath>

#include "client/cpp/error.h"

namespace ridgeline::client {

std::optional<absl::Duration> NextBackoff(const RetryPolicy& policy, int num_failed, const absl::Status& error,
                                          absl::Duration time_left, double jitter) {
  const std::optional<absl::Duration> server_delay = RetryDelay(error);
  const bool retry_can_help = absl::IsUnavailable(error) || (absl::IsResourceExhausted(error) && server_delay.has_value());
  if (!retry_can_help || num_failed >= policy.max_attempts) return std::nullopt;

  const absl::Duration backoff =
      std::min(policy.initial_backoff * std::pow(policy.multiplier, num_failed - 1), policy.max_backoff);
  const absl::Duration wait = server_delay.value_or(absl::ZeroDuration()) + backoff * (0.5 + 0.5 * jitter);
  if (wait >= time_left) return std::nullopt;
  return wait;
}

}  // namespace ridgeline::client
