#include "server/device/cuda_event.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/time/time.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"

namespace ridgeline::device {
namespace {

class LaneEvent final : public Event {
 public:
  LaneEvent(CudaContext& context, PooledEvent event) : context_(context), event_(std::move(event)) {}

  absl::Duration Since(const Event& earlier) const override {
    float milliseconds = 0;
    const absl::Status status = RIDGELINE_CUDA_CALL(context_, cudaEventElapsedTime, &milliseconds,
                                                    static_cast<const LaneEvent&>(earlier).event_->get(), event_->get());
    // It has no way to fail but a lost device or a caller's mistake; a report with a wrong time must not hide either.
    if (!status.ok()) base::Log(base::LogLevel::kError, "no time between events", {{"error", status.message()}});
    return absl::Milliseconds(static_cast<double>(milliseconds));
  }

 private:
  CudaContext& context_;
  const PooledEvent event_;
};

}  // namespace

absl::StatusOr<PooledEvent> EventPool::Take() {
  std::unique_ptr<TimedCudaEvent> event;
  {
    base::MutexLock lock(&mutex_);
    if (!free_.empty()) {
      event = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (event == nullptr) {
    RIDGELINE_ASSIGN_OR_RETURN(TimedCudaEvent made, TimedCudaEvent::Create(context_));
    event = std::make_unique<TimedCudaEvent>(std::move(made));
  }
  return PooledEvent(event.release(), [this](TimedCudaEvent* returned) { Return(absl::WrapUnique(returned)); });
}

void EventPool::Return(std::unique_ptr<TimedCudaEvent> event) {
  base::MutexLock lock(&mutex_);
  free_.push_back(std::move(event));
}

std::unique_ptr<Event> MakeLaneEvent(CudaContext& context, PooledEvent event) {
  return std::make_unique<LaneEvent>(context, std::move(event));
}

}  // namespace ridgeline::device
