#include "server/engine/cache_maker.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/error.h"
#include "server/base/log.h"
#include "server/device/start_thread.h"
#include "server/engine/scheduler_errors.h"

namespace ridgeline::engine {
namespace {

constexpr std::size_t kMaxWaiting = 16;
constexpr absl::Duration kRetryDelay = absl::Seconds(1);

absl::Status Full() {
  absl::Status status =
      absl::ResourceExhaustedError(absl::StrCat(kMaxWaiting, " KV caches wait to be made, which is the limit"));
  return base::WithRetryDelay(base::WithReason(std::move(status), base::kReasonQueueFull), kRetryDelay);
}

}  // namespace

struct CacheMaker::Order {
  const kv_cache::Caller caller;
  const kv_cache::CreateCacheRequest request;
  Done done;
  bool is_answered = false;  // or about to be; guarded by the maker's mutex
};

// Keeps no more of the maker than its callers promise: the engine outlives its calls.
class CacheMaker::PlacedOrder final : public Call {
 public:
  PlacedOrder(CacheMaker& maker, std::shared_ptr<Order> order) : maker_(maker), order_(std::move(order)) {}
  void Cancel() override { maker_.Cancel(order_); }

 private:
  CacheMaker& maker_;
  const std::shared_ptr<Order> order_;
};

CacheMaker::CacheMaker(kv_cache::KvCacheStore& store) : store_(store) {
  absl::StatusOr<std::thread> thread = device::StartThread("cache-maker", [this] { Serve(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    base::Log(base::LogLevel::kWarning, "KV caches are made by the threads of calls", {{"error", thread.status().message()}});
  }
}

CacheMaker::~CacheMaker() {
  {
    base::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<Call> CacheMaker::Make(const CallContext& context, kv_cache::CreateCacheRequest request, Done done) {
  auto order = std::make_shared<Order>(Order{.caller = context.caller, .request = std::move(request), .done = std::move(done)});
  if (!thread_.joinable()) {
    Fulfil(order);
    return nullptr;
  }
  {
    base::MutexLock lock(&mutex_);
    if (waiting_.size() < kMaxWaiting) {
      waiting_.push_back(order);
      changed_.Signal();
      return std::make_shared<PlacedOrder>(*this, std::move(order));
    }
  }
  order->done(Full());
  return nullptr;
}

void CacheMaker::Serve() {
  while (true) {
    std::shared_ptr<Order> order;
    {
      base::MutexLock lock(&mutex_);
      while (waiting_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (waiting_.empty()) return;
      order = std::move(waiting_.front());
      waiting_.pop_front();
    }
    Fulfil(order);
  }
}

void CacheMaker::Fulfil(const std::shared_ptr<Order>& order) {
  absl::StatusOr<kv_cache::CacheInfo> cache = store_.CreateCache(order->caller, order->request);
  bool is_wanted;
  {
    base::MutexLock lock(&mutex_);
    is_wanted = !std::exchange(order->is_answered, true);
  }
  if (is_wanted) return order->done(std::move(cache));
  // Should somebody use it already, its lease will end it.
  if (cache.ok()) store_.DeleteCache(order->caller, cache->name).IgnoreError();
}

void CacheMaker::Cancel(const std::shared_ptr<Order>& order) {
  {
    base::MutexLock lock(&mutex_);
    if (std::exchange(order->is_answered, true)) return;
    waiting_.remove(order);
  }
  order->done(Cancelled());
}

}  // namespace ridgeline::engine
