// Export of a sequence: each chunk is gathered from its pages by work of its own.
#pragma once

#include <memory>

#include "server/engine/kv_cache/kv_cache_store.h"
#include "server/engine/scheduler.h"
#include "server/engine/sequence_transfer.h"

namespace ridgeline::engine {

// `store` and `clock` outlive the reader.
std::unique_ptr<SequenceReader> MakeSequenceReader(std::shared_ptr<const kv_cache::Transfer> transfer,
                                                   kv_cache::KvCacheStore& store, std::shared_ptr<Scheduler> scheduler,
                                                   const base::Clock& clock);

}  // namespace ridgeline::engine
