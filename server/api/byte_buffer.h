// gRPC's byte buffers as the rest of the room reads and writes them: tensors are never copied.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "ridgeline/v1/kv_cache.pb.h"
#include "server/api/kv_cache_converter.h"
#include "server/device/buffer.h"
#include "server/engine/append_request.h"
#include "server/engine/attend_request.h"
#include "server/engine/fuse_request.h"
#include "server/engine/sequence_transfer.h"

namespace ridgeline::api {

// The bytes of a received message, in the pieces that gRPC read; `owner` keeps them.
struct WireView {
  std::vector<device::HostSlice> slices;
  std::shared_ptr<const void> owner;
};

// Leaves the buffer empty: who holds it, such as a call that waits for its answer, does not keep the bytes.
WireView TakeView(grpc::ByteBuffer& buffer);

// A message without tensors, of at most kMaxSkeletonBytes. The buffer is left empty. INVALID_ARGUMENT with reason
// MALFORMED_MESSAGE for bytes that are none.
absl::Status Parse(grpc::ByteBuffer& buffer, google::protobuf::Message& message);

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

// The serialised ridgeline.v1.FuseResponse, likewise; but an element of a repeated field that occurs again is another element,
// so each output is written in one piece, type and shape before its bytes.
grpc::ByteBuffer Serialize(const engine::FuseResult& result);

// A message that is small.
grpc::ByteBuffer Serialize(const google::protobuf::Message& message);

inline grpc::ByteBuffer Serialize(const engine::AppendKeyValueResult& result) { return Serialize(ToMessage(result)); }
inline grpc::ByteBuffer Serialize(const engine::kv_cache::CacheInfo& info) { return Serialize(ToMessage(info)); }

// A part of an export whose chunk lacks its tensors' bytes, followed by them, in the same way. Chunks have a few MiB.
grpc::ByteBuffer Serialize(const v1::SequencePart& part, const engine::OutgoingChunk& chunk);

}  // namespace ridgeline::api
