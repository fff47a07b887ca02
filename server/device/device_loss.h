// Whether a device is lost, and why: latched once, for good.
#pragma once

#include <atomic>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "server/base/mutex.h"

namespace ridgeline::device {

// Thread-safe.
class DeviceLoss {
 public:
  using Listener = absl::AnyInvocable<void(const absl::Status&)>;

  // The first cause stays. Becomes UNAVAILABLE with reason DEVICE_FAILED, whatever its code was.
  void Lose(const absl::Status& cause) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ok, or why the device is lost.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

  // See Device::OnLost.
  void OnLost(Listener listener) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  std::atomic<bool> lost_{false};  // so that asking is cheap while all is well
  mutable base::Mutex mutex_;
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);
  Listener listener_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ridgeline::device
