// An engine on a device that fails and holds completions when told to, and a clock that moves when told to.
#pragma once

#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/base/metrics.h"
#include "server/engine/engine.h"
#include "tests/support/fake_clock.h"
#include "tests/support/flaky_device.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine {

class EngineFixture : public ::testing::Test {
 protected:
  void Build(EngineOptions options, int num_lanes = 1) {
    device_ = std::make_unique<support::FlakyDevice>(MakeDevice(num_lanes));
    engine_ = CreateEngine(options, *device_, MadeUpRoofline(), metrics_, clock_);
  }

  std::shared_ptr<Call> Attend(const Answer& answer, absl::Time deadline = absl::InfiniteFuture(),
                               AttendRequest request = SmallRequest()) {
    return engine_->Attend(std::move(request), {.origin = {.request_id = "test"}, .deadline = deadline},
                           Answer(answer).Callback());
  }

  // Occupies a lane, the one that is next to be leased, until its completion is released. Lanes are leased from 0 up.
  std::shared_ptr<Call> Occupy(const Answer& answer, int lane = 0) {
    device_->HoldCompletions(lane);
    auto call = Attend(answer);
    device_->AwaitHeldCompletion(lane);
    return call;
  }

  base::MetricsRegistry metrics_;
  support::FakeClock clock_;
  std::unique_ptr<support::FlakyDevice> device_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace ridgeline::engine
