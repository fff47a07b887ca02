// gRPC's byte buffers as the rest of the room reads and writes them: tensors are never copied.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/device/buffer.h"
#include "server/engine/attend_request.h"

namespace ridgeline::api {

// The bytes of a received message, in the pieces that gRPC read; `owner` keeps them.
struct WireView {
  std::vector<device::HostSlice> slices;
  std::shared_ptr<const void> owner;
};

WireView ViewOf(const grpc::ByteBuffer& buffer);

// The serialised ridgeline.v1.AttendResponse. Tensor bytes are slices that share the results' memory:
//
//   message without tensor bytes │ output { inline_data: ... } │ log_sum_exp { inline_data: ... }
//
// A field that occurs again is merged by every protobuf parser, so the whole is one valid message. RESOURCE_EXHAUSTED if it
// would exceed what a protobuf message may hold.
absl::StatusOr<grpc::ByteBuffer> Serialize(const absl::StatusOr<engine::AttendResult>& result);

}  // namespace ridgeline::api
