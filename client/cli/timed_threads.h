// A few threads for work of many callers that comes at given times and may block.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace ridgeline::cli {

class TimedThreads {
 public:
  using Clock = std::chrono::steady_clock;

  // Starts as many of `num_threads` as the system allows, perhaps none.
  explicit TimedThreads(int num_threads);
  // Work that has not begun is dropped.
  ~TimedThreads();
  TimedThreads(const TimedThreads&) = delete;
  TimedThreads& operator=(const TimedThreads&) = delete;

  int num_threads() const { return static_cast<int>(threads_.size()); }

  // Runs `work` on one of the threads, as soon as one is free, or not before `time`. Of what is due, the earliest goes first;
  // what was posted without a time is due since its posting.
  void Post(std::function<void()> work) { PostAt(Clock::now(), std::move(work)); }
  void PostAt(Clock::time_point time, std::function<void()> work);

  // From now on nothing waits for its time.
  void Hurry();

 private:
  // Waits until something is due; nothing: the threads end.
  std::function<void()> TakeDue();
  void Run();

  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::multimap<Clock::time_point, std::function<void()>> items_ ABSL_GUARDED_BY(mutex_);  // equal times in order of posting
  bool hurrying_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace ridgeline::cli
