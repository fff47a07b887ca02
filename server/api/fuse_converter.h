// Fused operations between the wire's messages and the engine's structs.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ridgeline/v1/fused.pb.h"
#include "server/device/buffer.h"
#include "server/engine/fuse_request.h"
#include "server/engine/fused_ops.h"

namespace ridgeline::api {

// Parses a serialised ridgeline.v1.FuseRequest. Tensors are views of `wire`, which `owner` keeps alive. Errors:
// INVALID_ARGUMENT: bytes that are no message (MALFORMED_MESSAGE), or an enumerator that this server does not know. Shapes and
// sizes are the engine's to check.
absl::StatusOr<engine::FuseRequest> ParseFuseRequest(absl::Span<const device::HostSlice> wire,
                                                     std::shared_ptr<const void> owner);

// All of the response but the outputs.
v1::FuseResponse ToMessage(const engine::FuseResult& result);

v1::FusedOp ToMessage(const engine::FusedOpDescription& op);

}  // namespace ridgeline::api
