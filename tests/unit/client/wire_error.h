// Errors as a server sends them, for tests.
#pragma once

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace ridgeline::client {

// A google.rpc.Status with these details, serialized.
template <typename... Details>
std::string WireDetails(const Details&... details) {
  google::rpc::Status status;
  (status.add_details()->PackFrom(details), ...);
  return status.SerializeAsString();
}

inline google::rpc::ErrorInfo InfoWithReason(const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_domain("ridgeline.v1");
  info.set_reason(reason);
  return info;
}

inline google::rpc::BadRequest BadField(const std::string& field, const std::string& description) {
  google::rpc::BadRequest bad_request;
  google::rpc::BadRequest::FieldViolation* violation = bad_request.add_field_violations();
  violation->set_field(field);
  violation->set_description(description);
  return bad_request;
}

inline google::rpc::RetryInfo RetryAfter(int milliseconds) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(milliseconds / 1000);
  info.mutable_retry_delay()->set_nanos(milliseconds % 1000 * 1'000'000);
  return info;
}

}  // namespace ridgeline::client
