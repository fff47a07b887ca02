// Attention between the wire's messages and the engine's structs.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ridgeline/v1/attention.pb.h"
#include "server/device/buffer.h"
#include "server/engine/attend_request.h"

namespace ridgeline::api {

// Parses a serialised ridgeline.v1.AttendRequest. Tensors are views of `wire`, which `owner` keeps alive. Errors:
// INVALID_ARGUMENT: bytes that are no message (MALFORMED_MESSAGE), or an enumerator that this server does not know. Shapes and
// sizes are the engine's to check.
absl::StatusOr<engine::AttendRequest> ParseAttendRequest(absl::Span<const device::HostSlice> wire,
                                                         std::shared_ptr<const void> owner);

// All of the response but the tensors' bytes.
v1::AttendResponse ToMessage(const engine::AttendResult& result);

}  // namespace ridgeline::api
