#include "server/engine/lease_sweeper.h"

#include <utility>

#include "absl/time/time.h"
#include "server/base/log.h"
#include "server/device/start_thread.h"

namespace ridgeline::engine {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(1);

}  // namespace

LeaseSweeper::LeaseSweeper(kv_cache::KvCacheStore& store) : store_(store) {
  absl::StatusOr<std::thread> thread = device::StartThread("lease-sweeper", [this] { SweepUntilStopped(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    base::Log(base::LogLevel::kWarning, "no thread sweeps expired leases", {{"error", thread.status().message()}});
  }
}

LeaseSweeper::~LeaseSweeper() {
  {
    base::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void LeaseSweeper::SweepUntilStopped() {
  while (true) {
    {
      base::MutexLock lock(&mutex_);
      if (!stopping_) changed_.WaitWithTimeout(&mutex_, kPeriod);
      if (stopping_) return;
    }
    store_.SweepExpired();
  }
}

}  // namespace ridgeline::engine
