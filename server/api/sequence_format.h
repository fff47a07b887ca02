// The format of exported sequences: what ridgeline.v1.SequencePart says beyond the engine's structs, which is its version and
// its checksums.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ridgeline/v1/kv_cache.pb.h"
#include "server/device/buffer.h"
#include "server/engine/sequence_transfer.h"

namespace ridgeline::api {

inline constexpr std::int32_t kSequenceFormatVersion = 1;

// What a trailer says of the parts before it. Both sides of a transfer count along.
class SequenceSummary {
 public:
  explicit SequenceSummary(const engine::SequenceHeader& header);

  void AddChunk(std::int64_t layer, std::int64_t token_begin, std::int64_t tokens, std::uint32_t chunk_crc32c);
  v1::SequenceTrailer trailer() const;

 private:
  void Add(std::int64_t number);

  std::int64_t num_chunks_ = 0;
  std::uint32_t crc32c_ = 0;
};

v1::SequencePart ToMessage(const engine::SequenceHeader& header);

// All of the part but the elements; counts it.
v1::SequencePart ToMessage(const engine::OutgoingChunk& chunk, SequenceSummary& summary);

// One message of an import.
struct ImportMessage {
  std::string parent;
  std::string sequence_id;
  std::variant<std::monostate, engine::SequenceHeader, engine::IncomingChunk, v1::SequenceTrailer> part;
  std::uint32_t chunk_crc32c = 0;  // that the chunk claims
};

// Parses a serialised ridgeline.v1.ImportSequenceRequest. A chunk's tensors are views of `wire`, which `owner` keeps alive.
// Errors: INVALID_ARGUMENT: bytes that are no message, a version or an enumerator that this server does not know, no part.
// Shapes and order are the engine's to check.
absl::StatusOr<ImportMessage> ParseImportSequenceRequest(absl::Span<const device::HostSlice> wire,
                                                         std::shared_ptr<const void> owner);

// Checks the chunk's elements against the checksum that it claims, and counts it. INVALID_ARGUMENT, also for one whose elements
// are not inline.
absl::Status CheckChunk(const engine::IncomingChunk& chunk, std::uint32_t chunk_crc32c, SequenceSummary& summary);

// INVALID_ARGUMENT unless the trailer says what the parts before it were.
absl::Status CheckTrailer(const v1::SequenceTrailer& trailer, const SequenceSummary& summary);

}  // namespace ridgeline::api
