// Threads that answer callers. When a launch of a hundred requests has ended, its answers need not wait for each other, nor the
// device's thread, which has other lanes to serve, for all of them.
#pragma once

#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "server/base/mutex.h"

namespace ridgeline::engine {

// Thread-safe.
class AnswerThreads {
 public:
  using Answer = absl::AnyInvocable<void()>;

  // Fewer threads if the system refuses some; with none, posting runs the answer.
  explicit AnswerThreads(int num_threads);
  ~AnswerThreads();  // runs what was posted
  AnswerThreads(const AnswerThreads&) = delete;
  AnswerThreads& operator=(const AnswerThreads&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }
  void Post(Answer answer) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Serve() ABSL_LOCKS_EXCLUDED(mutex_);

  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<Answer> posted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace ridgeline::engine
