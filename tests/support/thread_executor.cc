#include "tests/support/thread_executor.h"

#include <cstdint>
#include <mutex>

namespace ridgeline::support {

ThreadExecutor::ThreadExecutor(int num_slots) {
  for (int slot = 1; slot < num_slots; ++slot) threads_.emplace_back([this, slot] { Serve(slot); });
}

ThreadExecutor::~ThreadExecutor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadExecutor::ParallelFor(std::int64_t num_tasks, kernels::TaskRef task) {
  Loop loop{.task = task, .num_tasks = num_tasks};
  {
    const std::lock_guard lock(mutex_);
    loop_ = &loop;
    ++num_loops_;
  }
  changed_.notify_all();
  Work(loop, 0);
  std::unique_lock lock(mutex_);
  loop_ = nullptr;  // a thread that wakes up late finds nothing to enter
  changed_.wait(lock, [&] { return loop.threads_inside == 0; });
}

void ThreadExecutor::CancelAfter(std::int64_t num_tasks) {
  tasks_until_cancel_ = num_tasks;
  if (num_tasks == 0) cancelled_ = true;
}

void ThreadExecutor::Serve(int slot) {
  std::uint64_t loops_seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || (loop_ != nullptr && num_loops_ != loops_seen); });
    if (stopping_) return;
    Loop& loop = *loop_;
    loops_seen = num_loops_;
    ++loop.threads_inside;
    lock.unlock();
    Work(loop, slot);
    lock.lock();
    if (--loop.threads_inside == 0) changed_.notify_all();
  }
}

void ThreadExecutor::Work(Loop& loop, int slot) {
  while (!cancelled()) {
    const std::int64_t task_idx = loop.next.fetch_add(1);
    if (task_idx >= loop.num_tasks) return;
    ++tasks_started_;
    loop.task(task_idx, slot);
    if (--tasks_until_cancel_ == 0) cancelled_ = true;
  }
}

}  // namespace ridgeline::support
