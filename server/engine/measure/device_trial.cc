#include "server/engine/measure/device_trial.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/common/data_type.h"
#include "server/base/notification.h"
#include "server/base/status_macros.h"

namespace ridgeline::engine::measure {
namespace {

using device::Buffer;
using device::Event;
using device::Lane;

// Twice the largest cache, or this where its size is unknown.
constexpr std::int64_t kMinFlushBytes = std::int64_t{64} << 20;

// Work holds its scratch memory from when it is queued.
constexpr std::int64_t kMostQueuedAtOnce = 64;

}  // namespace

absl::Status AwaitLane(Lane& lane) {
  base::Notification done;
  absl::Status result;
  lane.OnComplete([&](absl::Status status) {
    result = std::move(status);
    done.Notify();
  });
  done.Wait();
  return result;
}

absl::StatusOr<absl::Duration> TimeOnLane(Lane& lane, absl::FunctionRef<absl::Status()> queue) {
  const auto queue_all = [&]() -> absl::StatusOr<std::pair<std::unique_ptr<Event>, std::unique_ptr<Event>>> {
    RIDGELINE_RETURN_IF_ERROR(lane.Hold());
    RIDGELINE_ASSIGN_OR_RETURN(std::unique_ptr<Event> begin, lane.Record());
    RIDGELINE_RETURN_IF_ERROR(queue());
    RIDGELINE_ASSIGN_OR_RETURN(std::unique_ptr<Event> end, lane.Record());
    RIDGELINE_RETURN_IF_ERROR(lane.Release());
    return std::make_pair(std::move(begin), std::move(end));
  };
  const auto events = queue_all();
  const absl::Status ran = AwaitLane(lane);
  RIDGELINE_RETURN_IF_ERROR(events.status());
  RIDGELINE_RETURN_IF_ERROR(ran);
  return events->second->Since(*events->first);
}

absl::StatusOr<std::shared_ptr<const device::HostBuffer>> ReadBack(Lane& lane, const Buffer& buffer, std::int64_t size_bytes) {
  const auto queue = [&]() -> absl::StatusOr<std::shared_ptr<const device::HostBuffer>> {
    RIDGELINE_ASSIGN_OR_RETURN(Buffer copy, lane.Allocate(size_bytes));
    RIDGELINE_RETURN_IF_ERROR(lane.Copy(copy, buffer, size_bytes));
    return lane.Download(std::move(copy));
  };
  auto downloaded = queue();
  RIDGELINE_RETURN_IF_ERROR(AwaitLane(lane));
  return downloaded;
}

bool IsThrottling(const device::GpuStatus& status) {
  if (!status.throttle_reasons.has_value()) return false;
  return std::any_of(status.throttle_reasons->begin(), status.throttle_reasons->end(), [](const std::string& reason) {
    return reason == "sw_power_cap" || reason == "hw_slowdown" || reason == "sw_thermal_slowdown" ||
           reason == "hw_thermal_slowdown" || reason == "hw_power_brake_slowdown";
  });
}

absl::StatusOr<CacheFlush> CacheFlush::Create(Lane& lane, const device::DeviceInfo& info) {
  const std::int64_t size_bytes = std::max(kMinFlushBytes, 2 * std::max(info.l2_cache_bytes, info.l3_cache_bytes));
  const std::int64_t elements = size_bytes / kernels::ElementBytes(kernels::DataType::kFloat32);
  RIDGELINE_ASSIGN_OR_RETURN(Buffer from, lane.UploadRandom(kernels::DataType::kFloat32, elements, /*seed=*/1, 0, 1));
  absl::StatusOr<Buffer> to = lane.Allocate(size_bytes);
  RIDGELINE_RETURN_IF_ERROR(AwaitLane(lane));
  RIDGELINE_RETURN_IF_ERROR(to.status());
  return CacheFlush(lane, std::move(from), *std::move(to));
}

absl::Status CacheFlush::Run() {
  const absl::Status queued = lane_->Copy(to_, from_, from_.size_bytes());
  RIDGELINE_RETURN_IF_ERROR(AwaitLane(*lane_));
  return queued;
}

absl::StatusOr<absl::Duration> DeviceTrial::TakeSample(std::int64_t repetitions) {
  if (flush_ != nullptr) RIDGELINE_RETURN_IF_ERROR(flush_->Run());
  absl::Duration total;
  for (std::int64_t left = repetitions; left > 0; left -= kMostQueuedAtOnce) {
    RIDGELINE_ASSIGN_OR_RETURN(const absl::Duration elapsed, TimeOnLane(lane_, [&]() -> absl::Status {
                                 for (std::int64_t i = 0; i < std::min(left, kMostQueuedAtOnce); ++i) {
                                   RIDGELINE_RETURN_IF_ERROR(queue_(lane_));
                                 }
                                 return absl::OkStatus();
                               }));
    total += elapsed;
  }
  return total;
}

bool DeviceTrial::IsThrottled() {
  const std::optional<device::GpuStatus> status = device_.gpu_status();
  return status.has_value() && IsThrottling(*status);
}

}  // namespace ridgeline::engine::measure
