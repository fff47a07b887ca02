// A flag that is set once and waited for; on base::Mutex, so that the thread sanitizer sees what it orders.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/check.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace ridgeline::base {

// Thread-safe. What was written before Notify can be read after a wait that it ended.
class Notification {
 public:
  // At most once. The waiter may destroy the notification as soon as its wait has returned.
  void Notify() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    RIDGELINE_CHECK(!notified_);
    notified_ = true;
    changed_.SignalAll();
  }

  bool HasBeenNotified() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return notified_;
  }

  void Wait() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    while (!notified_) changed_.Wait(&mutex_);
  }

  // False if `timeout` passed first.
  bool WaitWithTimeout(absl::Duration timeout) const ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::Time deadline = Clock::Real().Now() + timeout;
    MutexLock lock(&mutex_);
    while (!notified_) {
      const absl::Duration left = deadline - Clock::Real().Now();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitWithTimeout(&mutex_, left);
    }
    return true;
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ridgeline::base
