// Events of a lane that are timed, pooled: making one takes longer than recording it.
#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/device/cuda_context.h"
#include "server/device/cuda_handles.h"
#include "server/device/device.h"

namespace ridgeline::device {

// An event of the lane's that goes back to its pool with its last owner, recorded or not: recording it again moves it.
using PooledEvent = std::shared_ptr<TimedCudaEvent>;

// Thread-safe; outlives its events.
class EventPool {
 public:
  explicit EventPool(CudaContext& context) : context_(context) {}

  absl::StatusOr<PooledEvent> Take() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Return(std::unique_ptr<TimedCudaEvent> event) ABSL_LOCKS_EXCLUDED(mutex_);

  CudaContext& context_;
  base::Mutex mutex_;
  std::vector<std::unique_ptr<TimedCudaEvent>> free_ ABSL_GUARDED_BY(mutex_);
};

// The interface's event over a pooled one, which the lane's thread may still have to record.
std::unique_ptr<Event> MakeLaneEvent(CudaContext& context, PooledEvent event);

}  // namespace ridgeline::device
