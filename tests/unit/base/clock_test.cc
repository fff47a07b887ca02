#include "server/base/clock.h"

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace ridgeline::base {
namespace {

TEST(ClockTest, TheRealClockBeganWithTheSystemsAndNeverGoesBack) {
  // Only a system whose clock is set while this runs would show more.
  EXPECT_LT(absl::AbsDuration(Clock::Real().Now() - SystemTime()), absl::Minutes(1));
  absl::Time before = Clock::Real().Now();
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = Clock::Real().Now();
    EXPECT_LE(before, now);
    before = now;
  }
}

absl::Duration steady_now;  // of the machine below

TEST(ClockTest, ASteadyClockKnowsOnlyWhatHasPassed) {
  const absl::Time begin = absl::FromUnixSeconds(1'700'000'000);
  steady_now = absl::Hours(77);
  const SteadyClock clock(begin, [] { return steady_now; });
  EXPECT_EQ(clock.Now(), begin);
  steady_now += absl::Milliseconds(1500);
  EXPECT_EQ(clock.Now(), begin + absl::Milliseconds(1500));
}

TEST(ClockTest, FakeClockMovesOnlyWhenTold) {
  support::FakeClock clock;
  const absl::Time start = clock.Now();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(absl::Milliseconds(1500));
  EXPECT_EQ(clock.Now() - start, absl::Milliseconds(1500));
}

}  // namespace
}  // namespace ridgeline::base
