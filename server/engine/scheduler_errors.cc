#include "server/engine/scheduler_errors.h"

#include "server/base/error.h"

namespace ridgeline::engine {

absl::Status Draining(const char* message) { return base::WithReason(absl::UnavailableError(message), base::kReasonDraining); }

absl::Status Cancelled() { return base::WithReason(absl::CancelledError("the caller cancelled"), base::kReasonCancelled); }

absl::Status DeadlineExceeded() {
  return base::WithReason(absl::DeadlineExceededError("the deadline came before a lane was free"),
                          base::kReasonDeadlineExceeded);
}

bool IsOutOfMemory(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && base::ErrorReason(status) == base::kReasonOutOfMemory;
}

}  // namespace ridgeline::engine
