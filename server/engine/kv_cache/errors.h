// The errors of KV caches, with their stable reasons. Ids and names given here are well formed.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "server/engine/kv_cache/resources.h"

namespace ridgeline::engine::kv_cache {

absl::Status CacheNotFound(std::string_view cache_id);
absl::Status CacheLost(std::string_view cache_id);
absl::Status CacheExists(std::string_view cache_id);
absl::Status CacheBusy(std::string_view cache_id);

absl::Status SequenceNotFound(std::string_view cache_id, std::string_view sequence_id);
absl::Status SequenceEvicted(std::string_view cache_id, std::string_view sequence_id);
absl::Status SequenceExists(std::string_view cache_id, std::string_view sequence_id);
absl::Status SequenceBusy(std::string_view cache_id, std::string_view sequence_id);

absl::Status CacheFull(std::string_view cache_id, EvictionPolicy policy, std::int64_t needed_pages, std::int64_t free_pages,
                       std::int64_t capacity_pages);

// `what` is counted, in the plural; `whose` says of whom: "the client has 64 caches; ...".
absl::Status QuotaExceeded(const char* whose, const char* what, std::int64_t held, std::int64_t wanted, std::int64_t quota);

}  // namespace ridgeline::engine::kv_cache
