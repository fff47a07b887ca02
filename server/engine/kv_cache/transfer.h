// A sequence on its way into or out of the server: it has no name that other calls could find, cannot be evicted, and keeps its
// cache from being deleted or expiring.
#pragma once

#include <memory>

#include "server/engine/kv_cache/resources.h"

namespace ridgeline::engine::kv_cache {

class KvCache;
class KvCacheStore;
struct Sequence;

// Dropping it gives its pages back (once running work has let go of them), unless it was published. Thread-safe; does not
// outlive its store.
class Transfer {
 public:
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  const Geometry& geometry() const;
  const SequenceInfo& info() const { return info_; }  // as it was when the transfer began

 private:
  friend class KvCacheStore;
  Transfer(KvCacheStore& store, std::shared_ptr<KvCache> cache, std::shared_ptr<Sequence> sequence, SequenceInfo info);

  KvCacheStore& store_;
  const std::shared_ptr<KvCache> cache_;
  const std::shared_ptr<Sequence> sequence_;
  const SequenceInfo info_;
};

}  // namespace ridgeline::engine::kv_cache
