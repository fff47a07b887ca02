#include "server/api/status_to_grpc.h"

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/base/error.h"

namespace ridgeline::api {
namespace {

constexpr char kDomain[] = "ridgeline.v1";
constexpr std::size_t kMaxMessageBytes = 1024;

// Cuts at a character's border, so that what is left is still UTF-8.
std::string Trim(absl::string_view message) {
  if (message.size() <= kMaxMessageBytes) return std::string(message);
  std::size_t size = kMaxMessageBytes;
  while (size > 0 && (static_cast<unsigned char>(message[size]) & 0xc0) == 0x80) --size;
  return std::string(message.substr(0, size)) + "...";
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status, const std::string& request_id) {
  if (status.ok()) return grpc::Status::OK;
  const std::optional<std::string> field = base::ErrorField(status);
  const std::string description = Trim(status.message());

  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(field.has_value() ? *field + ": " + description : description);
  google::rpc::ErrorInfo info;
  info.set_reason(base::ErrorReason(status));
  info.set_domain(kDomain);
  for (const auto& [name, value] : base::ErrorDetails(status)) (*info.mutable_metadata())[name] = value;
  details.add_details()->PackFrom(info);
  if (!request_id.empty()) {
    google::rpc::RequestInfo request;
    request.set_request_id(request_id);
    details.add_details()->PackFrom(request);
  }
  if (field.has_value()) {
    google::rpc::BadRequest bad_request;
    google::rpc::BadRequest::FieldViolation* violation = bad_request.add_field_violations();
    violation->set_field(*field);
    violation->set_description(description);
    details.add_details()->PackFrom(bad_request);
  }
  if (const std::optional<absl::Duration> delay = base::RetryDelay(status); delay.has_value()) {
    google::rpc::RetryInfo retry;
    const std::int64_t nanoseconds = absl::ToInt64Nanoseconds(*delay);
    retry.mutable_retry_delay()->set_seconds(nanoseconds / 1'000'000'000);
    retry.mutable_retry_delay()->set_nanos(static_cast<std::int32_t>(nanoseconds % 1'000'000'000));
    details.add_details()->PackFrom(retry);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(details.code()), details.message(), details.SerializeAsString());
}

}  // namespace ridgeline::api
