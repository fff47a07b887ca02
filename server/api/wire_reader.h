// Takes a message apart without copying its tensors: payloads of Tensor.inline_data stay where gRPC put them, and what is left,
// the skeleton, is small enough to be parsed by the generated code.
//
//   wire:      query { data_type shape inline_data: 16 MiB } dense { ... } options { ... }
//   skeleton:  query { data_type shape inline_data: #0     } dense { ... } options { ... }      payloads: #0 = slices of 16 MiB
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "server/device/buffer.h"

namespace ridgeline::api {

// Bytes of one inline_data field, in pieces of the original buffers.
struct Payload {
  std::vector<device::HostSlice> slices;
  std::int64_t size_bytes = 0;
};

struct SplitMessage {
  std::string skeleton;  // wire format; each inline_data holds a token
  std::vector<Payload> payloads;

  // The payload behind an inline_data field of the parsed skeleton.
  const Payload& FindPayload(const std::string& token) const;
};

// A message carries few tensors; what is not tensor data is small. Beyond these bounds a message is refused, so that nothing a
// client sends is blown up by parsing it.
inline constexpr int kMaxPayloads = 64;
inline constexpr std::int64_t kMaxSkeletonBytes = std::int64_t{16} << 20;

// Parses what is left of a message; its inline_data fields hold tokens. Error: INVALID_ARGUMENT with reason MALFORMED_MESSAGE.
absl::Status ParseSkeleton(const SplitMessage& split, google::protobuf::Message& message);

// Splits the wire bytes of a message of type `descriptor`. Does not check that the skeleton parses. Errors: INVALID_ARGUMENT
// with reason MALFORMED_MESSAGE for bytes that are no message (groups count as such: proto3 has none) or one beyond the bounds
// above.
absl::StatusOr<SplitMessage> Split(const google::protobuf::Descriptor& descriptor, absl::Span<const device::HostSlice> wire);

}  // namespace ridgeline::api
