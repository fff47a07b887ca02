// Benchmarks beside serving: who waits for whom, who is refused, and how a benchmark is ended.
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "server/base/mutex.h"
#include "server/base/notification.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/benchmark/events.h"
#include "tests/unit/engine/engine_fixture.h"

namespace ridgeline::engine {
namespace {

using support::IsOk;
using support::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// One Benchmark call as a test sees it.
class Observed {
 public:
  benchmark::TellEvent Tell() {
    return [state = state_](const benchmark::Event& event) {
      base::MutexLock lock(&state->mutex);
      EXPECT_FALSE(state->ended) << "an event after the end";
      state->told.Add(event);
      state->changed.SignalAll();
    };
  }
  benchmark::Done Done() {
    return [state = state_](absl::Status status) {
      base::MutexLock lock(&state->mutex);
      EXPECT_FALSE(std::exchange(state->ended, true)) << "a second end";
      state->status = std::move(status);
      state->changed.SignalAll();
    };
  }

  // Waits until a point is being measured.
  void AwaitStart() {
    base::MutexLock lock(&state_->mutex);
    while (state_->told.progress.size() < 2 && !state_->ended) state_->changed.Wait(&state_->mutex);
  }
  absl::Status Wait() {
    base::MutexLock lock(&state_->mutex);
    while (!state_->ended) state_->changed.Wait(&state_->mutex);
    return state_->status;
  }
  bool ended() {
    base::MutexLock lock(&state_->mutex);
    return state_->ended;
  }
  benchmark::Told told() {
    base::MutexLock lock(&state_->mutex);
    return state_->told;
  }

 private:
  struct State {
    base::Mutex mutex;
    base::CondVar changed;
    benchmark::Told told ABSL_GUARDED_BY(mutex);
    bool ended ABSL_GUARDED_BY(mutex) = false;
    absl::Status status ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// On the fixture's clock, which stands still, a point would never end: the shortest one has a single sample a round.
class InstrumentTest : public EngineFixture {
 protected:
  std::shared_ptr<Call> Start(Observed& observed, benchmark::Request request, absl::Time deadline = absl::InfiniteFuture()) {
    return engine_->Benchmark(std::move(request), {.origin = {.request_id = "test"}, .deadline = deadline}, observed.Tell(),
                              observed.Done());
  }

  // Runs until it is told not to.
  static benchmark::Request Endless() {
    return {.name = "batch_size",
            .axes = {{"batch", {"1"}}, {"width", {"16"}}, {"type", {"float32"}}},
            .measurement = {.min_time = absl::Minutes(1), .max_time = absl::Minutes(1)}};
  }

  // Lets the endless one end by its own measure.
  void LetTimePass(Observed& observed) {
    while (!observed.ended()) {
      clock_.Advance(absl::Seconds(61));
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
};

TEST_F(InstrumentTest, ServingWaitsUntilTheBenchmarkIsDone) {
  Build({}, /*num_lanes=*/2);
  Observed observed;
  Start(observed, Endless());
  observed.AwaitStart();
  const Answer answer;
  Attend(answer);
  EXPECT_EQ(engine_->load().queued_requests, 1) << "though a lane is free";
  EXPECT_FALSE(answer.arrived());
  LetTimePass(observed);
  EXPECT_THAT(observed.Wait(), IsOk());
  EXPECT_THAT(answer.Wait(), IsOk());
  ASSERT_THAT(observed.told().summaries, SizeIs(1));
  EXPECT_THAT(observed.told().summaries[0].serving_policy, HasSubstr("wait"));
}

TEST_F(InstrumentTest, TheBenchmarkWaitsForWhatRuns) {
  Build({}, /*num_lanes=*/2);
  const Answer running;
  Occupy(running, 0);
  Observed observed;
  Start(observed, Endless());
  const Answer later;
  Attend(later);
  EXPECT_THAT(observed.told().progress, SizeIs(1));
  EXPECT_TRUE(observed.told().progress[0].is_waiting);
  device_->ReleaseCompletions(0);
  EXPECT_THAT(running.Wait(), IsOk());
  observed.AwaitStart();
  EXPECT_FALSE(later.arrived()) << "it came after the benchmark";
  LetTimePass(observed);
  EXPECT_THAT(later.Wait(), IsOk());
}

TEST_F(InstrumentTest, ServingIsRefusedWhereThatIsThePolicy) {
  Build({.serving_waits = false});
  Observed observed;
  Start(observed, Endless());
  observed.AwaitStart();
  const Answer refused;
  EXPECT_EQ(Attend(refused), nullptr);
  EXPECT_THAT(refused.Wait(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(base::ErrorReason(refused.Wait().status()), base::kReasonBenchmarkRunning);
  EXPECT_TRUE(base::RetryDelay(refused.Wait().status()).has_value());
  LetTimePass(observed);
  EXPECT_THAT(observed.told().summaries.at(0).serving_policy, HasSubstr("refused"));
  const Answer served;
  Attend(served);
  EXPECT_THAT(served.Wait(), IsOk());
}

TEST_F(InstrumentTest, ASecondBenchmarkIsToldOfTheFirst) {
  Build({});
  Observed first, second, third;
  Start(first, Endless());
  EXPECT_EQ(Start(second, Endless()), nullptr);
  EXPECT_THAT(second.Wait(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("batch_size")));
  EXPECT_EQ(base::ErrorReason(second.Wait()), base::kReasonBenchmarkRunning);
  EXPECT_THAT(second.told().progress, IsEmpty());
  LetTimePass(first);
  EXPECT_THAT(first.Wait(), IsOk());
  Start(third, Endless());
  LetTimePass(third);
  EXPECT_THAT(third.Wait(), IsOk()) << "the first has left";
}

TEST_F(InstrumentTest, CancellingEndsItAndGivesTheDeviceBack) {
  Build({});
  Observed observed;
  const auto call = Start(observed, Endless());
  observed.AwaitStart();
  {
    const Answer answer;
    Attend(answer);
    call->Cancel();
    EXPECT_THAT(observed.Wait(), StatusIs(absl::StatusCode::kCancelled));
    EXPECT_THAT(answer.Wait(), IsOk());
  }
  EXPECT_TRUE(AllMemoryReturns(*device_));
  EXPECT_THAT(observed.told().summaries, IsEmpty());
}

TEST_F(InstrumentTest, ABenchmarkThatIsCancelledAsItWaitsNeverBegins) {
  Build({});
  const Answer running;
  Occupy(running);
  Observed observed, next;
  const auto call = Start(observed, Endless());
  call->Cancel();
  EXPECT_THAT(observed.Wait(), StatusIs(absl::StatusCode::kCancelled));
  Start(next, Endless());
  device_->ReleaseCompletions(0);
  LetTimePass(next);
  EXPECT_THAT(next.Wait(), IsOk());
  EXPECT_THAT(observed.told().points, IsEmpty());
}

TEST_F(InstrumentTest, ANextOneMayComeWhileACancelledOneStillEnds) {
  Build({});
  for (int i = 0; i < 20; ++i) {
    Observed observed;
    const auto call = Start(observed, Endless());
    if (i % 2 == 0) observed.AwaitStart();
    call->Cancel();
    EXPECT_THAT(observed.Wait(), StatusIs(absl::StatusCode::kCancelled));
  }
  const Answer answer;
  Attend(answer);
  EXPECT_THAT(answer.Wait(), IsOk());
}

TEST_F(InstrumentTest, TheDeadlineEndsIt) {
  Build({});
  Observed observed;
  Start(observed, Endless(), clock_.Now() + absl::Seconds(10));
  observed.AwaitStart();
  clock_.Advance(absl::Seconds(11));
  EXPECT_THAT(observed.Wait(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(AllMemoryReturns(*device_));
}

TEST_F(InstrumentTest, ALongBenchmarkIsNoStuckDevice) {
  Build({});
  Observed observed;
  benchmark::Request request = Endless();
  request.axes["batch"] = {"1", "2", "3"};  // three minutes
  const auto call = Start(observed, request);
  observed.AwaitStart();
  for (int i = 0; i < 5; ++i) {
    clock_.Advance(absl::Seconds(20));
    const absl::Time give_up = absl::Now() + absl::Minutes(1);
    while (!engine_->health().ok() && absl::Now() < give_up) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_THAT(engine_->health(), IsOk()) << i;
  }
  EXPECT_FALSE(observed.ended());
  call->Cancel();
}

TEST_F(InstrumentTest, DrainingCancelsItWhenItsTimeIsOver) {
  Build({});
  Observed observed;
  Start(observed, Endless());
  observed.AwaitStart();
  EXPECT_FALSE(engine_->Drain(absl::Milliseconds(10)));
  EXPECT_THAT(observed.Wait(), StatusIs(absl::StatusCode::kUnavailable));
  Observed late;
  Start(late, Endless());
  EXPECT_THAT(late.Wait(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(InstrumentTest, ALostDeviceEndsIt) {
  Build({});
  Observed observed;
  Start(observed, Endless());
  observed.AwaitStart();
  device_->Lose(absl::UnavailableError("it fell off the bus"));
  EXPECT_THAT(observed.Wait(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(InstrumentTest, ABadRequestChangesNothing) {
  Build({});
  Observed observed;
  EXPECT_EQ(Start(observed, {.name = "batch_size", .axes = {{"width", {"-1"}}}, .measurement = {}}), nullptr);
  EXPECT_THAT(observed.Wait(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(device_->num_calls(), 0);
  Observed next;
  Start(next, Endless());
  LetTimePass(next);
  EXPECT_THAT(next.Wait(), IsOk());
}

}  // namespace
}  // namespace ridgeline::engine
