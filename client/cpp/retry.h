// When to try again: a pure function, so that every case is a test without a clock.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace ridgeline::client {

// Exponential backoff: the n-th wait is drawn from the upper half of initial_backoff * multiplier^(n-1), at most max_backoff.
struct RetryPolicy {
  int max_attempts = 5;  // the first included; 1: never retry
  absl::Duration initial_backoff = absl::Milliseconds(100);
  absl::Duration max_backoff = absl::Seconds(5);
  double multiplier = 2;
};

// How long to wait before the next attempt, after `num_failed` of them (at least 1), the last with `error`. Nothing when to
// give up: the error is not one that a retry can help (UNAVAILABLE, or RESOURCE_EXHAUSTED whose server says when to come back),
// the attempts are spent, or the wait would outlast the call's deadline. `jitter` is uniform in [0, 1): it keeps clients that
// failed together from returning together. Never shorter than what the server asked for.
std::optional<absl::Duration> NextBackoff(const RetryPolicy& policy, int num_failed, const absl::Status& error,
                                          absl::Duration time_left, double jitter);

}  // namespace ridgeline::client
