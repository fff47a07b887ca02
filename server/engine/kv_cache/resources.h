// Caches and sequences as clients see them; fields mirror ridgeline.v1, so that errors name what the client sent.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/engine/kv_cache/geometry.h"

namespace ridgeline::engine::kv_cache {

inline constexpr absl::Duration kDefaultLease = absl::Minutes(10);
inline constexpr absl::Duration kShortestLease = absl::Seconds(1);
inline constexpr absl::Duration kLongestLease = absl::Hours(24 * 7);
inline constexpr int kDefaultListSize = 50;
inline constexpr int kMaxListSize = 1000;

// What a cache does when a sequence needs a page and none is free.
enum class EvictionPolicy : std::uint8_t { kNone, kLeastRecentlyUsed };

// Who calls. Both may be any bytes, and come from the client unless it has proven its name.
struct Caller {
  std::string client = {};         // whose caches it can name, and whose quota counts; empty: one of those who give no name
  std::string session_token = {};  // x-ridgeline-session
};

struct CreateCacheRequest {
  std::string cache_id = {};  // empty: the server makes one
  GeometryRequest geometry;
  std::optional<absl::Duration> lease_duration = {};  // unset: kDefaultLease
  EvictionPolicy eviction_policy = EvictionPolicy::kNone;
};

// A cache at one moment.
struct CacheInfo {
  std::string name;             // kvCaches/{kv_cache}
  std::string owner;            // the client that made it
  Geometry geometry;            // capacity_bytes of ridgeline.v1: capacity_pages * PageBytes()
  std::int64_t used_pages = 0;  // one that several sequences share counts once
  absl::Duration lease_duration;
  absl::Time expire_time;
  EvictionPolicy eviction_policy = EvictionPolicy::kNone;
  std::string routing_token;
  std::string instance_id;
  absl::Time create_time;
  std::int64_t sequences = 0;
  std::int64_t evicted_sequences = 0;
};

// A sequence at one moment.
struct SequenceInfo {
  std::string name;                   // kvCaches/{kv_cache}/sequences/{sequence}
  std::string owner;                  // the client that made it
  std::vector<std::int64_t> lengths;  // tokens of each layer
  std::int64_t pages = 0;
  std::int64_t shared_pages = 0;  // of those, used by another sequence too
  absl::Time create_time;
  absl::Time use_time;
};

struct ListRequest {
  int page_size = 0;  // 0: kDefaultListSize
  std::string page_token = {};
};

template <typename Info>
struct ListPage {
  std::vector<Info> items;      // by name
  std::string next_page_token;  // empty: there are no more
};

// Bounds of what all clients, and each client, may hold. A client's pages are those that were taken for its sequences and are
// still used by any sequence.
struct KvCacheOptions {
  std::string instance_id = {};  // of this server, made at its start
  bool shared_caches = false;    // all clients have the names of all caches; false: each has those of its own
  std::int64_t max_arena_bytes = std::numeric_limits<std::int64_t>::max();
  std::int64_t max_caches = 1024;
  std::int64_t max_caches_per_client = 64;
  std::int64_t max_sequences = std::int64_t{1} << 16;
  std::int64_t max_sequences_per_client = std::int64_t{1} << 14;
  std::int64_t max_pages_per_client = std::numeric_limits<std::int64_t>::max();
};

// Of all caches together, for metrics.
struct KvCacheStatistics {
  std::int64_t caches = 0;
  std::int64_t sequences = 0;
  std::int64_t clients = 0;  // that hold something
  std::int64_t used_pages = 0;
  std::int64_t free_pages = 0;
  std::int64_t arena_bytes = 0;
  // Since the start.
  std::int64_t expired_caches = 0;
  std::int64_t evicted_sequences = 0;
  std::int64_t copied_pages = 0;  // because they were shared when one was to be written
};

}  // namespace ridgeline::engine::kv_cache
