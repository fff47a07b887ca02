// What the tests of KV caches over a real daemon share: a small cache, tokens that both sides know, and attention over both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "ridgeline/v1/attention.pb.h"
#include "ridgeline/v1/kv_cache.pb.h"

namespace ridgeline::integration {

// The geometry of all caches here, so that requests need not say it.
inline constexpr std::int64_t kLayers = 2;
inline constexpr std::int64_t kKvHeads = 2;
inline constexpr std::int64_t kQueryHeads = 4;
inline constexpr std::int64_t kHeadDim = 16;
inline constexpr std::int64_t kValueHeadDim = 8;
inline constexpr std::int64_t kPageTokens = 4;

// Never retries.
client::Client Connect(const std::string& address, const std::string& name = "", const std::string& session = "");

v1::CreateKvCacheRequest CacheRequest(const std::string& id, std::int64_t capacity_pages);

// Sequences of one layer, token by token, as the test knows them.
struct Tokens {
  std::vector<float> key;    // [tokens, kKvHeads, kHeadDim]
  std::vector<float> value;  // [tokens, kKvHeads, kValueHeadDim]

  std::int64_t size() const { return static_cast<std::int64_t>(key.size()) / (kKvHeads * kHeadDim); }
  // The first `length` tokens.
  Tokens First(std::int64_t length) const;
  void Append(const Tokens& tokens);
};

// The same for the same seed.
Tokens RandomTokens(std::int64_t length, std::uint64_t seed);

// float32, inline.
v1::Tensor InlineTensor(const std::vector<std::int64_t>& shape, const std::vector<float>& elements);
std::vector<float> Elements(const v1::Tensor& tensor);

// Appends to one layer of one sequence.
v1::AppendKeyValueRequest AppendRequest(const std::string& sequence, std::int32_t layer, const Tokens& tokens);

// Causal attention of one row's last `query_tokens` tokens, whose queries come from the seed; log-sum-exp too.
v1::AttendRequest DenseRequest(const Tokens& tokens, std::int64_t query_tokens, std::uint64_t query_seed);
v1::AttendRequest PagedRequest(const std::string& sequence, std::int32_t layer, std::int64_t query_tokens,
                               std::uint64_t query_seed);
// Appends the tokens first; as many queries.
v1::AttendRequest StepRequest(const std::string& sequence, std::int32_t layer, const Tokens& new_tokens,
                              std::uint64_t query_seed);

// Fails the test unless the answer over pages is what the daemon gives for the same tokens sent with the request.
void ExpectAnswersDense(const client::Client& client, const v1::AttendResponse& paged, const Tokens& tokens,
                        std::int64_t query_tokens, std::uint64_t query_seed);
// The same, for one layer of a sequence; makes both calls.
void ExpectHolds(const client::Client& client, const std::string& sequence, std::int32_t layer, const Tokens& tokens);

}  // namespace ridgeline::integration
