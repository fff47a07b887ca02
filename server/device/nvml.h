// NVML, the driver's monitoring library, opened at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/device/device.h"

namespace ridgeline::device {

// Monitors one GPU. Thread-safe.
class Nvml {
 public:
  // `pci_bus_id` as CUDA gives it, "0000:1b:00.0". Errors: NOT_FOUND if there is no NVML; UNAVAILABLE if it knows no such GPU.
  static absl::StatusOr<std::unique_ptr<Nvml>> Create(const std::string& pci_bus_id,
                                                      const std::string& library = "libnvidia-ml.so.1");

  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // What the GPU does not answer is empty.
  GpuStatus Read() const;

 private:
  struct Api;

  explicit Nvml(std::unique_ptr<const Api> api, void* gpu);

  // Those that the driver reported since the last look.
  void ReadXids(GpuStatus& status) const ABSL_LOCKS_EXCLUDED(mutex_);

  const std::unique_ptr<const Api> api_;
  void* const gpu_;         // nvmlDevice_t
  void* events_ = nullptr;  // nvmlEventSet_t; null: Xids can't be watched here

  mutable base::Mutex mutex_;
  mutable std::int64_t xid_errors_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable std::optional<std::int64_t> last_xid_ ABSL_GUARDED_BY(mutex_);
};

// The reasons, of kThrottleReasons, in NVML's bit mask. An idle GPU lowers its clocks too; that is none.
std::vector<std::string> ThrottleReasons(unsigned long long mask);

}  // namespace ridgeline::device
