// Names of caches and sequences: kvCaches/{kv_cache} and kvCaches/{kv_cache}/sequences/{sequence}. Ids have 1 to 63 characters:
// lower-case letters, digits and hyphens, the first a letter, the last no hyphen.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ridgeline::engine::kv_cache {

struct SequencePath {
  std::string_view cache_id;
  std::string_view sequence_id;
};

bool IsId(std::string_view id);

std::string CacheName(std::string_view cache_id);
std::string SequenceName(std::string_view cache_id, std::string_view sequence_id);

// Views into `name`. Errors: INVALID_ARGUMENT for `field`.
absl::StatusOr<std::string_view> ParseCacheName(std::string_view field, std::string_view name);
absl::StatusOr<SequencePath> ParseSequenceName(std::string_view field, std::string_view name);
// The same in two steps, for who has many names: nothing if it is none, and the error.
std::optional<SequencePath> SplitSequenceName(std::string_view name);
absl::Status NotASequenceName(std::string_view field, std::string_view name);

// `id`, or one that nobody can guess if it is empty. Errors: INVALID_ARGUMENT for `field`.
absl::StatusOr<std::string> CheckOrMakeId(std::string_view field, std::string_view id);

// 128 random bits as an id.
std::string MakeId();

// A cache's routing token says which instance has it.
std::string MakeRoutingToken(std::string_view instance_id);
// What comes before the token's random part; empty if it is no token of ours.
std::string_view InstanceOfToken(std::string_view routing_token);

}  // namespace ridgeline::engine::kv_cache
