#include "server/base/error.h"

#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ridgeline::base {
namespace {

// Keys of the payloads; known to this file alone.
constexpr char kReasonPayload[] = "ridgeline/reason";
constexpr char kFieldPayload[] = "ridgeline/field";
constexpr char kRetryDelayPayload[] = "ridgeline/retry_delay_nanoseconds";
constexpr char kDetailPayloadPrefix[] = "ridgeline/detail/";

// The packaged Abseil's string_view is a type of its own.
absl::string_view ToAbsl(std::string_view text) { return absl::string_view(text.data(), text.size()); }

void Attach(absl::Status& status, const char* key, std::string_view value) {
  status.SetPayload(key, absl::Cord(ToAbsl(value)));
}

std::optional<std::string> Find(const absl::Status& status, const char* key) {
  const auto payload = status.GetPayload(key);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

std::string_view ReasonOfCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return "";
    case absl::StatusCode::kInvalidArgument:
      return kReasonInvalidField;
    case absl::StatusCode::kUnimplemented:
      return kReasonUnsupported;
    case absl::StatusCode::kResourceExhausted:
      return kReasonOutOfMemory;
    case absl::StatusCode::kUnavailable:
      return kReasonDeviceFailed;
    case absl::StatusCode::kDeadlineExceeded:
      return kReasonDeadlineExceeded;
    case absl::StatusCode::kCancelled:
      return kReasonCancelled;
    default:
      return kReasonInternal;
  }
}

}  // namespace

absl::Status InvalidField(std::string_view field, std::string_view message, std::string_view reason) {
  absl::Status status = absl::InvalidArgumentError(ToAbsl(message));
  Attach(status, kReasonPayload, reason);
  Attach(status, kFieldPayload, field);
  return status;
}

absl::Status Unsupported(std::string_view field, std::string_view message) {
  absl::Status status = absl::UnimplementedError(ToAbsl(message));
  Attach(status, kReasonPayload, kReasonUnsupported);
  if (!field.empty()) Attach(status, kFieldPayload, field);
  return status;
}

absl::Status WithRetryDelay(absl::Status status, absl::Duration delay) {
  Attach(status, kRetryDelayPayload, absl::StrCat(absl::ToInt64Nanoseconds(delay)));
  return status;
}

absl::Status WithReason(absl::Status status, std::string_view reason) {
  if (!Find(status, kReasonPayload).has_value()) Attach(status, kReasonPayload, reason);
  return status;
}

absl::Status WithDetail(absl::Status status, std::string_view name, std::string_view value) {
  Attach(status, absl::StrCat(kDetailPayloadPrefix, ToAbsl(name)).c_str(), value);
  return status;
}

std::string ErrorReason(const absl::Status& status) {
  return Find(status, kReasonPayload).value_or(std::string(ReasonOfCode(status.code())));
}

std::optional<std::string> ErrorField(const absl::Status& status) { return Find(status, kFieldPayload); }

std::optional<absl::Duration> RetryDelay(const absl::Status& status) {
  std::int64_t nanoseconds = 0;
  if (!absl::SimpleAtoi(Find(status, kRetryDelayPayload).value_or(""), &nanoseconds)) return std::nullopt;
  return absl::Nanoseconds(nanoseconds);
}

std::map<std::string, std::string> ErrorDetails(const absl::Status& status) {
  std::map<std::string, std::string> details;
  status.ForEachPayload([&details](absl::string_view key, const absl::Cord& value) {
    if (absl::ConsumePrefix(&key, kDetailPayloadPrefix)) details.emplace(std::string(key), std::string(value));
  });
  return details;
}

}  // namespace ridgeline::base
