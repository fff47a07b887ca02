// Locks that both checkers of ours understand: clang's thread-safety analysis by their annotations, the thread sanitizer by
// the pthread calls beneath. Abseil's own Mutex is opaque to the sanitizer unless all of Abseil is built with it, which a
// packaged Abseil is not: every field that it guards would be reported as a race. Used like Abseil's.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace ridgeline::base {

class ABSL_LOCKABLE Mutex {
 public:
  // A thread that finds it held looks again for a moment before it sleeps: what is done under our locks takes less time than to
  // be woken. On an H200's host 65 in place of 60 thousand decode steps a second (tests/gpu/RESULTS.md).
  Mutex() { *mutex_.native_handle() = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP; }
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex for a scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// Waits may end early for no reason: wait in a loop that tests the condition.
class CondVar {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }

  // False if `timeout` passed first; any duration is legal.
  bool WaitWithTimeout(Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const auto signalled = changed_.wait_for(lock, absl::ToChronoNanoseconds(std::min(timeout, kLongestWait)));
    lock.release();
    return signalled == std::cv_status::no_timeout;
  }

  void Signal() { changed_.notify_one(); }
  void SignalAll() { changed_.notify_all(); }

 private:
  // For ever, as far as a process is concerned, and far from where the standard library's clock arithmetic overflows.
  static constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);

  std::condition_variable changed_;
};

}  // namespace ridgeline::base
