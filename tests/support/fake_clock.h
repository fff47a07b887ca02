// Time that moves only when a test says so.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace ridgeline::support {

// Thread-safe.
class FakeClock final : public base::Clock {
 public:
  absl::Time Now() const override {
    base::MutexLock lock(&mutex_);
    return now_;
  }

  void Advance(absl::Duration duration) {
    base::MutexLock lock(&mutex_);
    now_ += duration;
  }

 private:
  mutable base::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1'700'000'000);
};

}  // namespace ridgeline::support
