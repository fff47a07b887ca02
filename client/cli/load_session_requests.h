// The calls that the sessions of a load make.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cpp/async_attend_stream.h"
#include "ridgeline/v1/attention.pb.h"
#include "ridgeline/v1/kv_cache.pb.h"

namespace ridgeline::cli {

// Of every session of one load.
struct SessionGeometry {
  ProblemShape shape;  // query_tokens: the most of a prefill chunk; batch is 1
  int layers = 1;
  std::int64_t page_tokens = 16;
  v1::DataType type = v1::DATA_TYPE_FLOAT32;
  v1::AttentionOptions options;
  bool inline_output = false;
  std::uint64_t seed = 1;
};

// Tokens of one AppendKeyValue that fills a context, at most: what the server makes of them at once stays small.
inline constexpr std::int64_t kMaxFillTokens = 4096;

// Makes the requests of sequence after sequence. Threads may share one.
class SessionRequests {
 public:
  explicit SessionRequests(const SessionGeometry& geometry);

  const SessionGeometry& geometry() const { return geometry_; }

  // Random rows that the server makes: nothing but their shape is sent. `seed` tells one append's rows from another's.
  v1::AppendKeyValueRequest Fill(const std::string& sequence, int layer, std::int64_t tokens, std::uint64_t seed) const;

  // A chunk of a prompt, likewise made by the server; a token sees those before it.
  client::EncodedRequest Prefill(const std::string& sequence, int layer, std::int64_t tokens) const;

  // One token for each layer, its query, key and value sent: as a model does, though always with the same elements.
  std::vector<client::EncodedRequest> DecodeSteps(const std::string& sequence) const;

 private:
  const SessionGeometry geometry_;
  v1::AttendRequest decode_;  // without sequence and layer
};

}  // namespace ridgeline::cli
