// One admitted request as the scheduler sees it; an operation derives from it. Knows nothing of queues.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/device/device.h"

namespace ridgeline::engine {

//   Queue ─ok─► (the lane completes) ─► Release ─► Finish(ok)
//     ▲  └─error─► (the lane completes) ─► Release ─┐
//     └────────── once more, if memory ran out ─────┘
//   Finish(error) may come at any time, from any thread, even during the calls above. Finish is called exactly once.
class Work {
 public:
  virtual ~Work() = default;

  // Memory of the device that the work holds at its peak.
  virtual std::int64_t device_bytes() const = 0;

  // From this time on it is not worth starting.
  virtual absl::Time deadline() const = 0;

  // Allocates and queues everything on the lane; what it allocates is held until Release. Ok: the lane alone keeps the caller's
  // inputs now, until it has read them, and Queue is not called again. After an error the work may be partly queued, and Queue
  // may be called once more after Release. `queue_time` is from the request's arrival until now.
  virtual absl::Status Queue(device::Lane& lane, const device::CancelToken& cancel, absl::Duration queue_time) = 0;

  // The lane has let go of the work. Ok: keeps the results and frees everything else. Error: frees the results too.
  virtual void Release(const absl::Status& status) = 0;

  // Answers the caller: with the results that Release kept, or the error.
  virtual void Finish(const absl::Status& status) = 0;
};

}  // namespace ridgeline::engine
