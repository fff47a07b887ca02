// Errors as the client returns them: an absl::Status whose message is made for people and whose payloads, one for each
// google.rpc detail under its type URL, are made for programs.
//
//   INVALID_ARGUMENT: query.shape: head_dim is 7; a multiple of 8, at most 256, is allowed [INVALID_FIELD]
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ridgeline::client {

// From a gRPC status: its code, its message and the serialized google.rpc.Status in its details (may be empty or garbage).
absl::Status ErrorFromWire(int code, absl::string_view message, absl::string_view details);

// "CODE: message", without the payloads, which are binary.
std::string ErrorString(const absl::Status& error);

// ErrorInfo.reason, e.g. "OUT_OF_MEMORY"; empty when the server named none.
std::string ErrorReason(const absl::Status& error);

// The fields that BadRequest names, e.g. "dense.key.shape".
std::vector<std::string> ViolatedFields(const absl::Status& error);

// RetryInfo.retry_delay: the server says that a retry can help, and when; at least 0.
std::optional<absl::Duration> RetryDelay(const absl::Status& error);

}  // namespace ridgeline::client
