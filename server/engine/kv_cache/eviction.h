// Which sequences go when pages are short: the least recently used.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "server/engine/kv_cache/page_pool.h"
#include "server/engine/kv_cache/sequence.h"

namespace ridgeline::engine::kv_cache {

// The sequences whose eviction makes up for `shortage` pages, at least 1: as many as it takes in the order of `by_use`, less
// those that would give nothing. Sequences that are in use or hidden stay. A page is free when all that share it go; one of
// `shared_pages`, which a use would copy, need not be copied when only that use's sequence is left. Nothing if the shortage
// remains with all of them gone. Takes time in proportion to the tables that it looks at.
std::optional<std::vector<Sequence*>> ChooseVictims(const std::list<Sequence*>& by_use, const PagePool& pool,
                                                    const absl::flat_hash_set<std::int32_t>& shared_pages,
                                                    std::int64_t shortage);

}  // namespace ridgeline::engine::kv_cache
