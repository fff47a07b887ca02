// The threads that kernels run on. Lanes share them: each lane's thread works on its own kernel, and idle helpers join it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "kernels/common/executor.h"
#include "server/base/mutex.h"
#include "server/device/device.h"

namespace ridgeline::device {

// Thread-safe.
class ThreadPool {
 public:
  // `num_threads` (>= 1) counts the caller of ParallelFor, so one less is made. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<ThreadPool>> Create(int num_threads);

  ~ThreadPool();  // no ParallelFor is running
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // As kernels::Executor::ParallelFor; the calling thread has slot 0. No task starts once `*cancelled` is set; null = never.
  void ParallelFor(std::int64_t num_tasks, kernels::TaskRef task, const std::atomic<bool>* cancelled);

 private:
  struct Loop;

  explicit ThreadPool(int num_threads) : num_threads_(num_threads) {}
  absl::Status Start();
  void Help(int slot);
  // A loop with tasks left; null if the pool stops.
  Loop* AwaitLoop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SpinUntilLoop() const;
  // Null if no loop has tasks left.
  Loop* FindLoop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeHelpers(const Loop& loop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int num_threads_;
  std::vector<std::thread> helpers_;

  base::Mutex mutex_;
  base::CondVar work_or_stop_;
  std::vector<Loop*> loops_ ABSL_GUARDED_BY(mutex_);  // whose callers still look for help
  std::atomic<int> num_loops_{0};                     // = loops_.size(), for those who spin
  int num_idle_ ABSL_GUARDED_BY(mutex_) = 0;          // helpers that wait
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

// What one kernel sees of the pool: its threads, and whether anyone still wants the result. `pool` outlives it.
class LaneExecutor final : public kernels::Executor {
 public:
  explicit LaneExecutor(ThreadPool& pool, CancelToken cancel = nullptr) : pool_(pool), cancel_(std::move(cancel)) {}

  int num_slots() const override { return pool_.num_threads(); }
  void ParallelFor(std::int64_t num_tasks, kernels::TaskRef task) override {
    pool_.ParallelFor(num_tasks, task, cancel_.get());
  }
  bool cancelled() const override { return cancel_ != nullptr && cancel_->load(std::memory_order_relaxed); }

 private:
  ThreadPool& pool_;
  const CancelToken cancel_;
};

}  // namespace ridgeline::device
