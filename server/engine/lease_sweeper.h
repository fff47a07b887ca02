// Frees KV caches whose leases have run out, though nobody asks for them: a client that died gives its pages back.
#pragma once

#include <thread>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/engine/kv_cache/kv_cache_store.h"

namespace ridgeline::engine {

// Sweeps once a second, from its construction to its destruction. Without a thread, which a system may refuse, expired caches
// go when somebody names them or makes another.
class LeaseSweeper {
 public:
  // `store` outlives the sweeper.
  explicit LeaseSweeper(kv_cache::KvCacheStore& store);
  ~LeaseSweeper();
  LeaseSweeper(const LeaseSweeper&) = delete;
  LeaseSweeper& operator=(const LeaseSweeper&) = delete;

 private:
  void SweepUntilStopped();

  kv_cache::KvCacheStore& store_;
  base::Mutex mutex_;
  base::CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ridgeline::engine
