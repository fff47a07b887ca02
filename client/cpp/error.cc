#include "client/cpp/error.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace ridgeline::client {
namespace {

template <typename Detail>
std::string TypeUrl() {
  return absl::StrCat("type.googleapis.com/", Detail::descriptor()->full_name());
}

template <typename Detail>
std::optional<Detail> FindDetail(const absl::Status& error) {
  const absl::optional<absl::Cord> payload = error.GetPayload(TypeUrl<Detail>());
  Detail detail;
  if (!payload.has_value() || !detail.ParseFromString(std::string(*payload))) return std::nullopt;
  return detail;
}

// "field: what is wrong with it"; descriptions may begin with the field themselves.
std::string ViolationText(const google::rpc::BadRequest::FieldViolation& violation) {
  if (violation.description().empty()) return violation.field();
  if (absl::StartsWith(violation.description(), absl::StrCat(violation.field(), " "))) return violation.description();
  return absl::StrCat(violation.field(), ": ", violation.description());
}

// Each violation, after whatever else the server had to say.
std::string MessageWithFields(absl::string_view message, const google::rpc::BadRequest& bad_request) {
  std::vector<std::string> parts;
  bool message_is_repeated = message.empty();
  for (const google::rpc::BadRequest::FieldViolation& violation : bad_request.field_violations()) {
    parts.push_back(ViolationText(violation));
    message_is_repeated |= message == violation.description() || message == parts.back() ||
                           message == absl::StrCat(violation.field(), ": ", violation.description());
  }
  if (!message_is_repeated) parts.insert(parts.begin(), std::string(message));
  return absl::StrJoin(parts, "; ");
}

}  // namespace

absl::Status ErrorFromWire(int code, absl::string_view message, absl::string_view details) {
  google::rpc::Status wire;
  if (!wire.ParseFromArray(details.data(), static_cast<int>(details.size()))) wire.Clear();
  google::rpc::BadRequest bad_request;
  google::rpc::ErrorInfo info;
  for (const google::protobuf::Any& detail : wire.details()) {
    detail.UnpackTo(&bad_request) || detail.UnpackTo(&info);
  }
  std::string text = MessageWithFields(message, bad_request);
  if (!info.reason().empty()) absl::StrAppend(&text, " [", info.reason(), "]");

  absl::Status error(static_cast<absl::StatusCode>(code), text);
  for (const google::protobuf::Any& detail : wire.details()) error.SetPayload(detail.type_url(), absl::Cord(detail.value()));
  return error;
}

std::string ErrorString(const absl::Status& error) { return error.ToString(absl::StatusToStringMode::kWithNoExtraData); }

std::string ErrorReason(const absl::Status& error) {
  return FindDetail<google::rpc::ErrorInfo>(error).value_or(google::rpc::ErrorInfo()).reason();
}

std::vector<std::string> ViolatedFields(const absl::Status& error) {
  std::vector<std::string> fields;
  const auto bad_request = FindDetail<google::rpc::BadRequest>(error).value_or(google::rpc::BadRequest());
  for (const auto& violation : bad_request.field_violations()) fields.push_back(violation.field());
  return fields;
}

std::optional<absl::Duration> RetryDelay(const absl::Status& error) {
  const std::optional<google::rpc::RetryInfo> info = FindDetail<google::rpc::RetryInfo>(error);
  if (!info.has_value()) return std::nullopt;
  const absl::Duration delay = absl::Seconds(info->retry_delay().seconds()) + absl::Nanoseconds(info->retry_delay().nanos());
  return std::max(delay, absl::ZeroDuration());
}

}  // namespace ridgeline::client
