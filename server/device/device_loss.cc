#include "server/device/device_loss.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/error.h"

namespace ridgeline::device {

void DeviceLoss::Lose(const absl::Status& cause) {
  const absl::Status lost = base::WithReason(absl::UnavailableError(absl::StrCat("the device is lost: ", cause.message())),
                                             base::kReasonDeviceFailed);
  Listener listener;
  {
    base::MutexLock lock(&mutex_);
    if (lost_.load(std::memory_order_relaxed)) return;
    cause_ = lost;
    lost_.store(true, std::memory_order_release);
    listener = std::exchange(listener_, nullptr);
  }
  if (listener != nullptr) listener(lost);
}

absl::Status DeviceLoss::status() const {
  if (!lost_.load(std::memory_order_acquire)) return absl::OkStatus();
  base::MutexLock lock(&mutex_);
  return cause_;
}

void DeviceLoss::OnLost(Listener listener) {
  {
    base::MutexLock lock(&mutex_);
    if (!lost_.load(std::memory_order_relaxed)) {
      listener_ = std::move(listener);
      return;
    }
  }
  listener(status());
}

}  // namespace ridgeline::device
