// The sampling loop on a clock that moves when a sample says so.
#include "server/engine/measure/sampling.h"

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::engine::measure {
namespace {

using support::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;

// Each run takes what the test says, and as long of the clock.
class PlannedTrial final : public Trial {
 public:
  PlannedTrial(support::FakeClock& clock, std::function<absl::Duration(int run)> run_time)
      : clock_(clock), run_time_(std::move(run_time)) {}

  absl::StatusOr<absl::Duration> TakeSample(std::int64_t repetitions) override {
    ++num_samples;
    absl::Duration total;
    for (std::int64_t i = 0; i < repetitions; ++i) total += run_time_(num_runs++);
    clock_.Advance(total);
    return total;
  }
  std::int64_t max_repetitions() const override { return most_repetitions; }
  bool IsThrottled() override { return throttled(); }
  absl::Status CheckInterest() override { return interest(num_samples); }

  int num_samples = 0;
  int num_runs = 0;
  std::int64_t most_repetitions = 1 << 20;
  std::function<bool()> throttled = [] { return false; };
  std::function<absl::Status(int)> interest = [](int) { return absl::OkStatus(); };

 private:
  support::FakeClock& clock_;
  const std::function<absl::Duration(int run)> run_time_;
};

class SamplingTest : public ::testing::Test {
 protected:
  PlannedTrial Steady(absl::Duration run_time) {
    return PlannedTrial(clock_, [run_time](int) { return run_time; });
  }

  support::FakeClock clock_;
  const Limits limits_{.warm_up = absl::Milliseconds(10),
                       .min_time = absl::Milliseconds(50),
                       .max_time = absl::Seconds(1),
                       .max_relative_noise = 0.005};
};

TEST_F(SamplingTest, SteadyWorkStopsWhenItsSamplesAgree) {
  PlannedTrial trial = Steady(absl::Milliseconds(1));
  const absl::Time begin = clock_.Now();
  ASSERT_OK_AND_ASSIGN(const Samples samples, TakeSamples(trial, absl::Milliseconds(1), limits_, clock_));
  EXPECT_EQ(samples.stop_reason, StopReason::kQuiet);
  EXPECT_THAT(samples.seconds, Each(1e-3));
  EXPECT_FALSE(samples.throttled);
  EXPECT_GE(clock_.Now() - begin, limits_.min_time) << "not before min_time, though they agree";
  EXPECT_LT(clock_.Now() - begin, absl::Milliseconds(100));
}

TEST_F(SamplingTest, WarmUpIsNoSample) {
  PlannedTrial trial(clock_, [](int run) { return run < 9 ? absl::Milliseconds(1) : absl::Milliseconds(2); });
  ASSERT_OK_AND_ASSIGN(const Samples samples, TakeSamples(trial, absl::Milliseconds(1), limits_, clock_));
  EXPECT_THAT(samples.seconds, Each(2e-3)) << "ten milliseconds less the first run are nine runs of one";
}

TEST_F(SamplingTest, AFirstRunLongerThanTheWarmUpIsWarmUpEnough) {
  PlannedTrial trial = Steady(absl::Milliseconds(500));
  ASSERT_OK_AND_ASSIGN(const Samples samples, TakeSamples(trial, absl::Milliseconds(500), limits_, clock_));
  EXPECT_EQ(trial.num_samples, static_cast<int>(samples.seconds.size()));
}

TEST_F(SamplingTest, ShortWorkIsRepeatedWithinASample) {
  PlannedTrial trial = Steady(absl::Microseconds(1));
  ASSERT_OK_AND_ASSIGN(const Samples samples, TakeSamples(trial, absl::Microseconds(1), limits_, clock_));
  EXPECT_EQ(samples.repetitions, 200);
  EXPECT_THAT(samples.seconds, Each(::testing::DoubleNear(1e-6, 1e-12))) << "of one run, not of a sample";
}

TEST_F(SamplingTest, WorkThatBearsNoCompanyIsNotRepeated) {
  PlannedTrial trial = Steady(absl::Microseconds(1));
  trial.most_repetitions = 1;
  ASSERT_OK_AND_ASSIGN(const Samples samples, TakeSamples(trial, absl::Microseconds(1), limits_, clock_));
  EXPECT_EQ(samples.repetitions, 1);
}

TEST_F(SamplingTest, UnsteadyWorkStopsAtTheTimeLimitAndSaysSo) {
  PlannedTrial trial(clock_, [](int run) { return absl::Microseconds(1000 + run * 7919 % 5003); });
  const absl::Time begin = clock_.Now();
  ASSERT_OK_AND_ASSIGN(const Samples samples, TakeSamples(trial, absl::Milliseconds(1), limits_, clock_));
  EXPECT_EQ(samples.stop_reason, StopReason::kTimeLimit);
  EXPECT_THAT(clock_.Now() - begin, AllOf(Ge(limits_.max_time), Le(limits_.max_time + absl::Milliseconds(30))));
}

TEST_F(SamplingTest, WorkLongerThanTheTimeLimitIsSampledOnce) {
  PlannedTrial trial = Steady(absl::Seconds(3));
  ASSERT_OK_AND_ASSIGN(const Samples samples, TakeSamples(trial, absl::Seconds(3), limits_, clock_));
  EXPECT_EQ(samples.seconds, std::vector<double>{3});
  EXPECT_EQ(samples.stop_reason, StopReason::kTimeLimit) << "one sample agrees with nobody";
}

TEST_F(SamplingTest, ALooserLimitOfNoiseStopsEarlier) {
  const auto samples_at = [&](double noise) {
    PlannedTrial trial(clock_, [](int run) { return absl::Milliseconds(10 + run % 3); });
    Limits limits = limits_;
    limits.max_time = absl::Minutes(1);
    limits.max_relative_noise = noise;
    return TakeSamples(trial, absl::Milliseconds(10), limits, clock_)->seconds.size();
  };
  EXPECT_LT(samples_at(0.2), samples_at(0.01));
}

TEST_F(SamplingTest, ThrottledRoundsAreDiscardedAndCounted) {
  PlannedTrial trial(clock_, [&](int run) { return run < 40 ? absl::Milliseconds(2) : absl::Milliseconds(1); });
  trial.throttled = [&] { return trial.num_runs < 40; };
  ASSERT_OK_AND_ASSIGN(const Samples samples, TakeSamples(trial, absl::Milliseconds(2), limits_, clock_));
  EXPECT_GT(samples.discarded, 20);
  EXPECT_FALSE(samples.throttled);
  EXPECT_LT(samples.seconds.back(), 2e-3);
  EXPECT_EQ(static_cast<std::int64_t>(samples.seconds.size()) + samples.discarded, trial.num_samples - 4) << "4 warm up";
}

TEST_F(SamplingTest, ADeviceThatIsAlwaysThrottledSaysSo) {
  PlannedTrial trial = Steady(absl::Milliseconds(1));
  trial.throttled = [] { return true; };
  ASSERT_OK_AND_ASSIGN(const Samples samples, TakeSamples(trial, absl::Milliseconds(1), limits_, clock_));
  EXPECT_TRUE(samples.throttled);
  EXPECT_EQ(samples.discarded, 0);
  EXPECT_FALSE(samples.seconds.empty()) << "a poor figure with a flag is better than none";
  EXPECT_EQ(samples.stop_reason, StopReason::kTimeLimit);
}

TEST_F(SamplingTest, LostInterestEndsItBetweenSamples) {
  PlannedTrial trial = Steady(absl::Milliseconds(1));
  trial.interest = [](int num_samples) { return num_samples < 30 ? absl::OkStatus() : absl::CancelledError("enough"); };
  EXPECT_THAT(TakeSamples(trial, absl::Milliseconds(1), limits_, clock_), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(trial.num_samples, 30);
}

TEST_F(SamplingTest, AClockThatStandsStillIsNoEndlessLoop) {
  PlannedTrial trial(clock_,
                     [&, step = 0](int) mutable { return ++step % 1000 == 0 ? absl::Milliseconds(1) : absl::ZeroDuration(); });
  ASSERT_OK_AND_ASSIGN(const Samples samples, TakeSamples(trial, absl::ZeroDuration(), limits_, clock_));
  EXPECT_FALSE(samples.seconds.empty());
}

}  // namespace
}  // namespace ridgeline::engine::measure
