#include "client/cli/timed_threads.h"

#include <system_error>
#include <utility>

#include "absl/time/time.h"

namespace ridgeline::cli {

TimedThreads::TimedThreads(int num_threads) {
  try {
    while (static_cast<int>(threads_.size()) < num_threads) threads_.emplace_back([this] { Run(); });
  } catch (const std::system_error&) {
    // Those that run do the work of all.
  }
}

TimedThreads::~TimedThreads() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void TimedThreads::PostAt(Clock::time_point time, std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  items_.emplace(time, std::move(work));
  changed_.Signal();
}

void TimedThreads::Hurry() {
  absl::MutexLock lock(&mutex_);
  hurrying_ = true;
  changed_.SignalAll();
}

std::function<void()> TimedThreads::TakeDue() {
  absl::MutexLock lock(&mutex_);
  while (!ending_) {
    if (items_.empty()) {
      changed_.Wait(&mutex_);
      continue;
    }
    const Clock::duration wait = items_.begin()->first - Clock::now();
    if (!hurrying_ && wait > Clock::duration::zero()) {
      changed_.WaitWithTimeout(&mutex_, absl::FromChrono(wait));
      continue;
    }
    // Another thread looks after the items that are left.
    if (items_.size() > 1) changed_.Signal();
    return std::move(items_.extract(items_.begin()).mapped());
  }
  return nullptr;
}

void TimedThreads::Run() {
  while (const std::function<void()> work = TakeDue()) work();
}

}  // namespace ridgeline::cli
