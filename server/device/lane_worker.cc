#include "server/device/lane_worker.h"

#include <utility>

#include "absl/memory/memory.h"
#include "server/base/status_macros.h"
#include "server/device/start_thread.h"

namespace ridgeline::device {
absl::StatusOr<std::unique_ptr<LaneWorker>> LaneWorker::Create(const std::string& thread_name, LaneProgress& progress) {
  auto worker = absl::WrapUnique(new LaneWorker(progress));
  RIDGELINE_ASSIGN_OR_RETURN(worker->thread_, StartThread(thread_name, [worker = worker.get()] { worker->Loop(); }));
  return worker;
}

LaneWorker::~LaneWorker() {
  if (!thread_.joinable()) return;
  {
    base::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  queued_or_stop_.Signal();
  thread_.join();
}

void LaneWorker::Queue(Work work) { QueueItem({.work = std::move(work), .done = nullptr}); }

void LaneWorker::QueueCompletion(Completion done) { QueueItem({.work = nullptr, .done = std::move(done)}); }

void LaneWorker::QueueItem(Item item) {
  // Only the end of a batch wakes: the thread then finds all of it, and often runs on the core that its caller is about to
  // leave. Woken by the first item it would take an idle core: measured, 39 instead of 14 µs for a small request on an idle
  // lane.
  const bool ends_batch = item.done != nullptr;
  bool must_wake;
  {
    base::MutexLock lock(&mutex_);
    queue_.push_back(std::move(item));
    progress_.queued.fetch_add(1, std::memory_order_release);
    must_wake = ends_batch && std::exchange(sleeping_, false);
  }
  if (must_wake) queued_or_stop_.Signal();
}

void LaneWorker::RunOrQueueCompletion(Completion done) {
  std::vector<Item> items;
  {
    base::MutexLock lock(&mutex_);
    if (sleeping_) {
      items.swap(queue_);
      items.push_back({.work = nullptr, .done = std::move(done)});
      progress_.queued.fetch_add(1, std::memory_order_release);
    }
  }
  if (items.empty()) return QueueCompletion(std::move(done));
  // The next batch may be queued, and this object destroyed, once the last item has run.
  for (Item& item : items) Run(item);
}

void LaneWorker::Loop() {
  std::vector<Item> items;
  for (TakeItems(items); !items.empty(); TakeItems(items)) {
    for (Item& item : items) Run(item);
  }
}

void LaneWorker::Run(Item& item) {
  if (item.done != nullptr) {
    // Counted before it runs: a completion touches no device memory, and its caller finds the lane idle.
    progress_.completed.fetch_add(1, std::memory_order_release);
    std::exchange(item.done, nullptr)(std::exchange(batch_status_, absl::OkStatus()));
    return;
  }
  if (batch_status_.ok()) batch_status_ = item.work();
  item.work = nullptr;  // lets go of what the work kept alive, run or not
  progress_.completed.fetch_add(1, std::memory_order_release);
}

void LaneWorker::TakeItems(std::vector<Item>& items) {
  items.clear();
  base::MutexLock lock(&mutex_);
  while (queue_.empty() && !stopping_) {
    sleeping_ = true;
    queued_or_stop_.Wait(&mutex_);
  }
  sleeping_ = false;
  items.swap(queue_);
}

}  // namespace ridgeline::device
