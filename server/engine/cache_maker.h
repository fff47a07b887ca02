// Makes KV caches one after the other on a thread of its own: the device takes its time for an arena of many GiB, and callers'
// threads have others to serve.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/engine/call.h"
#include "server/engine/call_context.h"
#include "server/engine/kv_cache/kv_cache_store.h"

namespace ridgeline::engine {

// Thread-safe.
class CacheMaker {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<kv_cache::CacheInfo>)>;

  // `store` outlives it. Without a thread, should the system refuse one, callers make their caches.
  explicit CacheMaker(kv_cache::KvCacheStore& store);
  ~CacheMaker();  // makes what waits
  CacheMaker(const CacheMaker&) = delete;
  CacheMaker& operator=(const CacheMaker&) = delete;

  // Calls `done` exactly once, as Engine::Attend does. Errors beside the store's: RESOURCE_EXHAUSTED (QUEUE_FULL) with a retry
  // delay; CANCELLED. A cache that nobody wants any more when it has been made is deleted.
  std::shared_ptr<Call> Make(const CallContext& context, kv_cache::CreateCacheRequest request, Done done);

 private:
  struct Order;
  class PlacedOrder;
  using Orders = std::list<std::shared_ptr<Order>>;

  void Serve() ABSL_LOCKS_EXCLUDED(mutex_);
  void Fulfil(const std::shared_ptr<Order>& order) ABSL_LOCKS_EXCLUDED(mutex_);
  void Cancel(const std::shared_ptr<Order>& order) ABSL_LOCKS_EXCLUDED(mutex_);

  kv_cache::KvCacheStore& store_;
  base::Mutex mutex_;
  base::CondVar changed_;
  Orders waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ridgeline::engine
