// A small thread pool that runs kernels in tests.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/common/executor.h"

namespace ridgeline::support {

// One ParallelFor at a time. The calling thread works too, as slot 0.
class ThreadExecutor : public kernels::Executor {
 public:
  explicit ThreadExecutor(int num_slots);
  ~ThreadExecutor() override;
  ThreadExecutor(const ThreadExecutor&) = delete;
  ThreadExecutor& operator=(const ThreadExecutor&) = delete;

  int num_slots() const override { return static_cast<int>(threads_.size()) + 1; }
  void ParallelFor(std::int64_t num_tasks, kernels::TaskRef task) override;
  bool cancelled() const override { return cancelled_.load(std::memory_order_relaxed); }

  // Makes cancelled() true once `num_tasks` more tasks have started; 0: at once.
  void CancelAfter(std::int64_t num_tasks);

  std::int64_t tasks_started() const { return tasks_started_.load(); }

 private:
  // What the threads of one ParallelFor share.
  struct Loop {
    kernels::TaskRef task;
    std::int64_t num_tasks;
    std::atomic<std::int64_t> next{0};
    int threads_inside = 0;
  };

  void Serve(int slot);
  void Work(Loop& loop, int slot);

  std::atomic<bool> cancelled_{false};
  std::atomic<std::int64_t> tasks_until_cancel_{INT64_MAX};
  std::atomic<std::int64_t> tasks_started_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  Loop* loop_ = nullptr;         // guarded by mutex_
  std::uint64_t num_loops_ = 0;  // guarded by mutex_
  bool stopping_ = false;        // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace ridgeline::support
