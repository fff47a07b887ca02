// Work on a lane as a trial: queued between two events, released at once, waited for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/device/buffer.h"
#include "server/device/device.h"
#include "server/engine/measure/sampling.h"

namespace ridgeline::engine::measure {

// Waits until all that was queued has run; its first error. The thread must not be one of the device's.
absl::Status AwaitLane(device::Lane& lane);

// The device's time for what `queue` puts on the lane. After an error too all that was queued has run.
absl::StatusOr<absl::Duration> TimeOnLane(device::Lane& lane, absl::FunctionRef<absl::Status()> queue);

// What lies in the first `size_bytes` of a buffer, which stays as it is.
absl::StatusOr<std::shared_ptr<const device::HostBuffer>> ReadBack(device::Lane& lane, const device::Buffer& buffer,
                                                                   std::int64_t size_bytes);

// Whether a reason of device::kThrottleReasons means that the chip could not keep its clocks, rather than that somebody set
// them.
bool IsThrottling(const device::GpuStatus& status);

// A buffer larger than all caches, copied before each sample: what the work needs then comes from
// memory.
class CacheFlush {
 public:
  static absl::StatusOr<CacheFlush> Create(device::Lane& lane, const device::DeviceInfo& info);

  absl::Status Run();

 private:
  CacheFlush(device::Lane& lane, device::Buffer from, device::Buffer to)
      : lane_(&lane), from_(std::move(from)), to_(std::move(to)) {}

  device::Lane* lane_;
  device::Buffer from_, to_;
};

class DeviceTrial final : public Trial {
 public:
  using QueueWork = absl::AnyInvocable<absl::Status(device::Lane& lane)>;

  // Everything outlives the trial. `flush` may be null: the caches are as the last run left them. `interest` is asked between
  // samples.
  DeviceTrial(device::Device& device, device::Lane& lane, QueueWork& queue, CacheFlush* flush,
              absl::FunctionRef<absl::Status()> interest)
      : device_(device), lane_(lane), queue_(queue), flush_(flush), interest_(interest) {}

  absl::StatusOr<absl::Duration> TakeSample(std::int64_t repetitions) override;
  std::int64_t max_repetitions() const override { return flush_ == nullptr ? Trial::max_repetitions() : 1; }
  bool IsThrottled() override;
  absl::Status CheckInterest() override { return interest_(); }

 private:
  device::Device& device_;
  device::Lane& lane_;
  QueueWork& queue_;
  CacheFlush* const flush_;
  const absl::FunctionRef<absl::Status()> interest_;
};

}  // namespace ridgeline::engine::measure
