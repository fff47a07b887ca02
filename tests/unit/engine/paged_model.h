// KV caches as a test remembers them: plain rows of floats for every sequence and layer, a page as a shared pointer; and calls
// on them, whose answers it knows.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/engine/engine.h"

namespace ridgeline::engine {

// Float32; head_dim and value_head_dim differ, and pages are small, so that few tokens make many.
inline constexpr std::int64_t kLayers = 2, kKvHeads = 2, kQueryHeads = 4, kHeadDim = 8, kValueHeadDim = 16, kPageTokens = 4;
inline constexpr std::int64_t kKeyRowElems = kKvHeads * kHeadDim, kValueRowElems = kKvHeads * kValueHeadDim;
inline constexpr std::int64_t kQueryRowElems = kQueryHeads * kHeadDim;

// Makes the cache kvCaches/{id} of this geometry.
kv_cache::CreateCacheRequest CacheRequest(const std::string& id, std::int64_t capacity_pages,
                                          kv_cache::EvictionPolicy policy = kv_cache::EvictionPolicy::kNone);

// kvCaches/{cache}/sequences/{id}.
std::string NameOf(const std::string& cache, const std::string& id);

using Random = std::mt19937_64;

std::vector<float> RandomRows(Random& random, std::int64_t elements);
// A float32 tensor with the elements, which it keeps.
Tensor FloatTensor(std::vector<std::int64_t> shape, std::vector<float> elements);

// Rows for one layer of some sequences, as AppendKeyValue and Attend bring them.
struct PagedCall {
  std::vector<std::string> sequences;
  std::int64_t layer = 0;
  std::vector<std::int64_t> tokens;  // of each sequence
  bool appends = false;
  bool ragged = false;  // else all have the same number of tokens
  bool causal = false;
  bool log_sum_exp = false;
  std::vector<float> query;       // [total tokens, kQueryRowElems]
  std::vector<float> key, value;  // likewise, if it appends

  std::int64_t total_tokens() const;
  AttendRequest Attend() const;
  AppendKeyValueRequest Append() const;
};

// With random rows.
PagedCall MakeCall(Random& random, std::vector<std::string> sequences, std::int64_t layer, std::vector<std::int64_t> tokens,
                   bool appends);

class PagedModel {
 public:
  struct Layer {
    std::vector<float> keys, values;  // a row for each token

    std::int64_t tokens() const { return static_cast<std::int64_t>(keys.size()) / kKeyRowElems; }
    bool operator==(const Layer&) const = default;
  };
  struct Sequence {
    std::vector<Layer> layers = std::vector<Layer>(kLayers);
    std::vector<std::shared_ptr<int>> pages;

    std::vector<std::int64_t> lengths() const;
  };

  std::map<std::string, Sequence>& sequences() { return sequences_; }  // by name
  const Sequence& sequence(const std::string& name) const { return sequences_.at(name); }

  void Append(const PagedCall& call);
  void Truncate(const std::string& name, std::int64_t length);
  std::int64_t used_pages() const;

  // The answer to a call whose rows have been appended already, if it appends any.
  ::testing::AssertionResult IsRight(const PagedCall& call, const AttendResult& result) const;

 private:
  std::map<std::string, Sequence> sequences_;
};

// Reads the sequence out, chunk by chunk, and compares.
::testing::AssertionResult ExportsAs(Engine& engine, const std::string& name, const PagedModel::Sequence& want);

}  // namespace ridgeline::engine
