#include "client/cli/cache_document.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "client/cli/arguments.h"
#include "client/cli/measurement.h"

namespace ridgeline::cli {
namespace {

std::string PolicyName(v1::EvictionPolicy policy) {
  switch (policy) {
    case v1::EVICTION_POLICY_NONE:
      return "none";
    case v1::EVICTION_POLICY_LEAST_RECENTLY_USED:
      return "lru";
    default:
      return v1::EvictionPolicy_Name(policy);
  }
}

absl::Time TimeOf(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

Value SecondsUntil(absl::Time time, absl::Time now) { return {absl::ToDoubleSeconds(time - now), Unit::kSeconds}; }

// Layers usually have the same length; people read it once.
std::int64_t LongestLayer(const v1::Sequence& sequence) {
  const auto longest = std::max_element(sequence.lengths().begin(), sequence.lengths().end());
  return longest == sequence.lengths().end() ? 0 : *longest;
}

}  // namespace

Section CacheSection(const v1::KvCache& cache, absl::Time now) {
  return {"KV cache",
          {{"name", "name", cache.name()},
           {"data_type", "elements", DataTypeName(cache.data_type())},
           {"layers", "layers", std::int64_t{cache.layers()}},
           {"kv_heads", "key-value heads", std::int64_t{cache.kv_heads()}},
           {"head_dim", "head dimension", std::int64_t{cache.head_dim()}},
           {"value_head_dim", "of values", std::int64_t{cache.value_head_dim()}},
           {"page_tokens", "tokens a page", std::int64_t{cache.page_tokens()}},
           {"capacity_pages", "pages", cache.capacity_pages()},
           {"used_pages", "in use", cache.used_pages()},
           {"capacity_bytes", "memory", {cache.capacity_bytes(), Unit::kBytes}},
           {"sequence_count", "sequences", cache.sequence_count()},
           {"evicted_sequence_count", "evicted so far", cache.evicted_sequence_count()},
           {"eviction_policy", "eviction", PolicyName(cache.eviction_policy())},
           {"lease_seconds", "lease", {Seconds(cache.lease_duration()), Unit::kSeconds}},
           {"expires_in_seconds", "runs out in", SecondsUntil(TimeOf(cache.expire_time()), now)},
           {"client", "made by", cache.client()},
           {"routing_token", "routing token", cache.routing_token()},
           {"instance_id", "instance", cache.instance_id()}}};
}

Section SequenceSection(const v1::Sequence& sequence, absl::Time now) {
  return {"Sequence",
          {{"name", "name", sequence.name()},
           {"tokens", "tokens", LongestLayer(sequence)},
           {"lengths", "", std::vector<std::int64_t>(sequence.lengths().begin(), sequence.lengths().end())},
           {"page_count", "pages", sequence.page_count()},
           {"shared_page_count", "of them shared", sequence.shared_page_count()},
           {"unused_seconds", "not used for", SecondsUntil(now, TimeOf(sequence.use_time()))},
           {"client", "made by", sequence.client()}}};
}

Rows CacheRows(const std::vector<v1::KvCache>& caches, absl::Time now) {
  Rows rows{"kv_caches",
            {{"name", "cache"},
             {"data_type", "elements"},
             {"layers", "layers"},
             {"kv_heads", "KV heads"},
             {"head_dim", "head dim"},
             {"page_tokens", "page"},
             {"used_pages", "pages used"},
             {"capacity_pages", "of"},
             {"capacity_bytes", "memory"},
             {"sequence_count", "sequences"},
             {"expires_in_seconds", "runs out in"},
             {"client", "made by"}},
            {}};
  for (const v1::KvCache& cache : caches) {
    rows.values.push_back({cache.name(),
                           DataTypeName(cache.data_type()),
                           std::int64_t{cache.layers()},
                           std::int64_t{cache.kv_heads()},
                           std::int64_t{cache.head_dim()},
                           std::int64_t{cache.page_tokens()},
                           cache.used_pages(),
                           cache.capacity_pages(),
                           {cache.capacity_bytes(), Unit::kBytes},
                           cache.sequence_count(),
                           SecondsUntil(TimeOf(cache.expire_time()), now),
                           cache.client()});
  }
  return rows;
}

Rows SequenceRows(const std::vector<v1::Sequence>& sequences, absl::Time now) {
  Rows rows{"sequences",
            {{"name", "sequence"},
             {"tokens", "tokens"},
             {"page_count", "pages"},
             {"shared_page_count", "shared"},
             {"unused_seconds", "not used for"}},
            {}};
  for (const v1::Sequence& sequence : sequences) {
    rows.values.push_back({sequence.name(), LongestLayer(sequence), sequence.page_count(), sequence.shared_page_count(),
                           SecondsUntil(now, TimeOf(sequence.use_time()))});
  }
  return rows;
}

}  // namespace ridgeline::cli
