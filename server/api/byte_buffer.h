// gRPC's byte buffers as the rest of the room reads and writes them: tensors are never copied.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "server/device/buffer.h"
#include "server/engine/attend_request.h"

namespace ridgeline::api {

// The bytes of a received message, in the pieces that gRPC read; `owner` keeps them.
struct WireView {
  std::vector<device::HostSlice> slices;
  std::shared_ptr<const void> owner;
};

// Leaves the buffer empty: who holds it, such as a call that waits for its answer, does not keep the bytes.
WireView TakeView(grpc::ByteBuffer& buffer);

// What a message may hold: protobuf's and gRPC's lengths are signed 32-bit numbers.
inline constexpr std::int64_t kMaxMessageBytes = std::numeric_limits<std::int32_t>::max();

// What the tensors of an answer may take of that; the rest, generously, is for their shapes and the report.
inline constexpr std::int64_t kMaxAnswerTensorBytes = kMaxMessageBytes - (std::int64_t{1} << 20);

// The serialised ridgeline.v1.AttendResponse. Tensor bytes are slices that share the results' memory:
//
//   message without tensor bytes │ output { inline_data: ... } │ log_sum_exp { inline_data: ... }
//
// A field that occurs again is merged by every protobuf parser, so the whole is one valid message. The tensors have at most
// kMaxAnswerTensorBytes.
grpc::ByteBuffer Serialize(const engine::AttendResult& result);

}  // namespace ridgeline::api
