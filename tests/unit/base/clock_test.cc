#include "server/base/clock.h"

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace ridgeline::base {
namespace {

TEST(ClockTest, RealClockIsTheSystems) {
  const absl::Time before = absl::Now();
  const absl::Time now = Clock::Real().Now();
  EXPECT_LE(before, now);
  EXPECT_LE(now, absl::Now());
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
