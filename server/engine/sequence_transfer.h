// A sequence of a KV cache on its way out of the server, or in: piece by piece, so that neither side ever holds all of it in
// host memory. The wire format (version, checksums) is the caller's.
//
//   SequenceReader: header(), then Next ─► chunk, Next ─► chunk, ... Next ─► nothing more
//   SequenceWriter: Append(chunk) ─► ok, Append(chunk) ─► ok, ... Commit: now the sequence is there
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/common/data_type.h"
#include "server/engine/call.h"
#include "server/engine/call_context.h"
#include "server/engine/tensor.h"

namespace ridgeline::engine {

// What a sequence consists of.
struct SequenceHeader {
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_head_dim = 0;
  kernels::DataType data_type = kernels::DataType::kFloat32;
  std::vector<std::int64_t> lengths;  // [layers] tokens
};

// Successive tokens of one layer, at least one, as they leave.
struct OutgoingChunk {
  std::int64_t layer = 0;
  std::int64_t token_begin = 0;
  OutputTensor key;    // [tokens, kv_heads, head_dim]
  OutputTensor value;  // [tokens, kv_heads, value_head_dim]
};

// The same, as they come in: not yet checked. Fields mirror ridgeline.v1.SequenceChunk.
struct IncomingChunk {
  std::int64_t layer = 0;
  std::int64_t token_begin = 0;
  std::optional<Tensor> key;
  std::optional<Tensor> value;
};

// A sequence as it was when the reader was made: what is appended, truncated or deleted later does not show. One call at a
// time. May be let go at any time when no call is under way; the engine outlives it.
class SequenceReader {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<std::optional<OutgoingChunk>>)>;

  virtual ~SequenceReader() = default;

  virtual const SequenceHeader& header() const = 0;

  // Calls `done` exactly once, as Engine::Attend does, with the next chunk, or with nothing when all have been read. Chunks
  // come layer by layer from 0, each from token 0 on without a gap, none larger than a few MiB. After an error the same chunk
  // may be asked for again.
  virtual std::shared_ptr<Call> Next(CallContext context, Done done) = 0;
};

// A sequence that nobody sees before Commit. One call at a time. Let go without Commit it leaves nothing behind.
class SequenceWriter {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  virtual ~SequenceWriter() = default;

  // Chunks come as SequenceReader gives them, of any size. Calls `done` exactly once, as Engine::Attend does. Errors:
  // INVALID_ARGUMENT naming the field below "part.chunk" (out of order, beyond the header's lengths, another shape or type);
  // RESOURCE_EXHAUSTED as for AppendKeyValue. After an error nothing of the chunk is there and it may be sent again.
  virtual std::shared_ptr<Call> Append(IncomingChunk chunk, CallContext context, Done done) = 0;

  // All chunks have come: the sequence appears; its name is returned. Errors: INVALID_ARGUMENT (reason TRUNCATED_EXPORT) if
  // tokens are missing; ALREADY_EXISTS; NOT_FOUND if the cache has gone.
  virtual absl::StatusOr<std::string> Commit() = 0;
};

}  // namespace ridgeline::engine
