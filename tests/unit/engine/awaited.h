// One value that comes later, from another thread.
#pragma once

#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "server/base/check.h"
#include "server/base/notification.h"

namespace ridgeline::engine {

// Copies stand for the same value. A second one ends the process.
template <typename T>
class Awaited {
 public:
  auto Callback() {
    return [state = state_](T value) {
      RIDGELINE_CHECK(!state->arrived.HasBeenNotified());
      state->value = std::move(value);
      state->arrived.Notify();
    };
  }
  bool arrived() const { return state_->arrived.HasBeenNotified(); }
  // At most a minute, then the process ends.
  const T& Wait() const {
    RIDGELINE_CHECK(state_->arrived.WaitWithTimeout(absl::Minutes(1)));
    return state_->value;
  }

 private:
  struct State {
    base::Notification arrived;
    T value;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace ridgeline::engine
