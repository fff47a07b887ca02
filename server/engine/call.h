// A request under way, as its caller holds it.
#pragma once

namespace ridgeline::engine {

// Dropping the handle does not cancel. Thread-safe.
class Call {
 public:
  virtual ~Call() = default;

  // The result is not wanted any more: waiting work leaves the queue, running work is cut short where the device can. `done` is
  // called with CANCELLED, at once if it had not been called yet; memory comes back when the device has let go of it.
  virtual void Cancel() = 0;
};

}  // namespace ridgeline::engine
