#include "server/engine/scheduler_errors.h"

#include "absl/time/time.h"
#include "server/base/error.h"

namespace ridgeline::engine {

absl::Status Draining(const char* message) { return base::WithReason(absl::UnavailableError(message), base::kReasonDraining); }

absl::Status DrainingTakesNoWork() { return Draining("the server is draining and takes no new work"); }

absl::Status Cancelled() { return base::WithReason(absl::CancelledError("the caller cancelled"), base::kReasonCancelled); }

absl::Status DeadlineExceeded() {
  return base::WithReason(absl::DeadlineExceededError("the deadline came before a lane was free"),
                          base::kReasonDeadlineExceeded);
}

absl::Status DeviceIsTaken() {
  constexpr absl::Duration kRetryDelay = absl::Seconds(1);
  return base::WithRetryDelay(
      base::WithReason(absl::ResourceExhaustedError("a benchmark has the device for itself; other work is refused meanwhile"),
                       base::kReasonBenchmarkRunning),
      kRetryDelay);
}

bool IsOutOfMemory(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && base::ErrorReason(status) == base::kReasonOutOfMemory;
}

}  // namespace ridgeline::engine
