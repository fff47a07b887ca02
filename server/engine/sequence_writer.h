// Import of a sequence: each chunk is appended by work of its own.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/engine/kv_cache/kv_cache_store.h"
#include "server/engine/scheduler.h"
#include "server/engine/sequence_transfer.h"

namespace ridgeline::engine {

// Ok if sequences such as the header says fit into a cache of this geometry. Errors: INVALID_ARGUMENT, fields below
// "part.header".
absl::Status CheckHeader(const kv_cache::Geometry& geometry, const SequenceHeader& header);

// The header has been checked. `store` and `clock` outlive the writer.
std::unique_ptr<SequenceWriter> MakeSequenceWriter(std::shared_ptr<const kv_cache::Transfer> transfer, SequenceHeader header,
                                                   kv_cache::KvCacheStore& store, std::shared_ptr<Scheduler> scheduler,
                                                   const base::Clock& clock);

}  // namespace ridgeline::engine
