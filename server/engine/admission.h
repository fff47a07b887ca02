// Who may come in: bounds on the requests that wait and on the device bytes of all that were admitted.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/common/saturating.h"
#include "server/base/error.h"
#include "server/base/units.h"

namespace ridgeline::engine {

// Not thread-safe: its owner's mutex guards it.
class Admission {
 public:
  Admission(int max_waiting, std::int64_t max_admitted_bytes)
      : max_waiting_(max_waiting), max_admitted_bytes_(max_admitted_bytes) {}

  // Counts the bytes as admitted, until Discharge. Errors: RESOURCE_EXHAUSTED (QUEUE_FULL) with `retry_delay`. Work that is
  // larger than the whole budget is admitted while nothing else is.
  absl::Status Admit(std::int64_t bytes, bool must_wait, int num_waiting, absl::Duration retry_delay) {
    if (must_wait && IsFull(num_waiting)) {
      return Full(absl::StrCat(num_waiting, " requests wait, which is the limit"), retry_delay);
    }
    const std::int64_t total_bytes = kernels::SaturatingAdd(admitted_bytes_, bytes);
    if (admitted_bytes_ > 0 && total_bytes > max_admitted_bytes_) {
      return Full(
          absl::StrCat("the request needs ", base::FormatBytes(bytes), " beside the ", base::FormatBytes(admitted_bytes_),
                       " of admitted requests; the limit is ", base::FormatBytes(max_admitted_bytes_)),
          retry_delay);
    }
    admitted_bytes_ = total_bytes;
    return absl::OkStatus();
  }

  // Admitted work has ended, wherever it was.
  void Discharge(std::int64_t bytes) { admitted_bytes_ -= bytes; }

  bool IsFull(int num_waiting) const { return num_waiting >= max_waiting_; }
  std::int64_t admitted_bytes() const { return admitted_bytes_; }

 private:
  static absl::Status Full(const std::string& why, absl::Duration retry_delay) {
    absl::Status status = absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", why));
    return base::WithRetryDelay(base::WithReason(std::move(status), base::kReasonQueueFull), retry_delay);
  }

  const int max_waiting_;
  const std::int64_t max_admitted_bytes_;
  std::int64_t admitted_bytes_ = 0;
};

}  // namespace ridgeline::engine
