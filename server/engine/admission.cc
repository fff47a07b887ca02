#include "server/engine/admission.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturating.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/base/units.h"

namespace ridgeline::engine {
namespace {

absl::Status Full(absl::string_view why) {
  return base::WithReason(absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", why)), base::kReasonQueueFull);
}

absl::Status OverQuota(absl::string_view quota, absl::string_view why) {
  absl::Status status = absl::ResourceExhaustedError(absl::StrCat("the client has its share of the queue: ", why));
  return base::WithDetail(base::WithReason(std::move(status), base::kReasonQuotaExceeded), "quota", std::string(quota));
}

// What a request of so many bytes comes to, beside others.
std::string BytesBeside(std::int64_t bytes, std::int64_t admitted_bytes, std::int64_t limit_bytes) {
  return absl::StrCat("the request needs ", base::FormatBytes(bytes), " beside the ", base::FormatBytes(admitted_bytes),
                      " of admitted requests; the limit is ", base::FormatBytes(limit_bytes));
}

}  // namespace

absl::Status Admission::Admit(const WorkTraits& work, bool must_wait, int num_waiting, absl::Duration retry_delay) {
  absl::Status status = CheckQuotas(work);
  status.Update(CheckRoom(work, must_wait, num_waiting));
  if (!status.ok()) return base::WithRetryDelay(std::move(status), retry_delay);
  admitted_bytes_ = kernels::SaturatingAdd(admitted_bytes_, work.device_bytes);
  Share& share = shares_[work.client];
  ++share.requests;
  share.bytes = kernels::SaturatingAdd(share.bytes, work.device_bytes);
  return absl::OkStatus();
}

void Admission::Discharge(const WorkTraits& work) {
  admitted_bytes_ -= work.device_bytes;
  const auto found = shares_.find(work.client);
  found->second.bytes -= work.device_bytes;
  if (--found->second.requests == 0) shares_.erase(found);
}

absl::Status Admission::CheckRoom(const WorkTraits& work, bool must_wait, int num_waiting) const {
  if (must_wait && IsFull(num_waiting)) return Full(absl::StrCat(num_waiting, " requests wait, which is the limit"));
  const std::int64_t total_bytes = kernels::SaturatingAdd(admitted_bytes_, work.device_bytes);
  if (admitted_bytes_ > 0 && total_bytes > limits_.max_queued_bytes) {
    return Full(BytesBeside(work.device_bytes, admitted_bytes_, limits_.max_queued_bytes));
  }
  return absl::OkStatus();
}

absl::Status Admission::CheckQuotas(const WorkTraits& work) {
  const auto found = shares_.find(work.client);
  if (found == shares_.end()) return absl::OkStatus();
  const Share& share = found->second;
  if (limits_.max_requests_per_client > 0 && share.requests >= limits_.max_requests_per_client) {
    ++refusals_.requests;
    return OverQuota("requests", absl::StrCat(share.requests, " of its requests wait or run, which is the limit"));
  }
  const std::int64_t total_bytes = kernels::SaturatingAdd(share.bytes, work.device_bytes);
  if (limits_.max_bytes_per_client > 0 && share.bytes > 0 && total_bytes > limits_.max_bytes_per_client) {
    ++refusals_.bytes;
    return OverQuota("bytes", BytesBeside(work.device_bytes, share.bytes, limits_.max_bytes_per_client));
  }
  return absl::OkStatus();
}

}  // namespace ridgeline::engine
