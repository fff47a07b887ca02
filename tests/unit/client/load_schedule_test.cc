#include "client/cli/load_schedule.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::cli {
namespace {

using ::testing::ElementsAreArray;
using ::testing::Not;

WorkMix Mix(double decode_share = 0) {
  WorkMix mix;
  mix.shapes = *ParseWeightedShapes("1,16,1,8/1,32,1,8");
  mix.decode_share = decode_share;
  return mix;
}

LoadTiming OpenLoop(double rate_per_second) {
  return {/*warm_up_seconds=*/1, /*duration_seconds=*/10, /*drain_seconds=*/2, rate_per_second};
}

// Everything that a caller who never tarries is given.
std::vector<double> IntendedTimes(LoadSchedule& schedule) {
  std::vector<double> times;
  double now = -1;
  while (const std::optional<LoadSchedule::Item> item = schedule.Next(now)) {
    now = item->intended_seconds;
    times.push_back(now);
  }
  return times;
}

TEST(PoissonArrivalsTest, GapsAreExponential) {
  constexpr int kCount = 20'000;
  constexpr double kRate = 250;
  std::mt19937_64 random(11);
  PoissonArrivals arrivals(kRate, /*start_seconds=*/-3);
  double last = -3;
  int num_below_mean = 0;
  for (int i = 0; i < kCount; ++i) {
    const double time = arrivals.Next(random);
    ASSERT_GE(time, last);
    num_below_mean += time - last < 1 / kRate ? 1 : 0;
    last = time;
  }
  // Five standard errors. An exponential's deviation is its mean; 1 - 1/e of the gaps are below it.
  EXPECT_NEAR((last + 3) / kCount, 1 / kRate, 5 / kRate / std::sqrt(kCount));
  const double share = 1 - std::exp(-1.0);
  EXPECT_NEAR(num_below_mean, share * kCount, 5 * std::sqrt(kCount * share * (1 - share)));
}

TEST(LoadScheduleTest, TheClosedLoopSendsAtOnceUntilTheEnd) {
  LoadSchedule schedule({/*warm_up_seconds=*/1, /*duration_seconds=*/10, /*drain_seconds=*/2, std::nullopt}, Mix(), 1);
  EXPECT_EQ(schedule.Next(-0.75)->intended_seconds, -0.75);
  EXPECT_EQ(schedule.Next(9.5)->intended_seconds, 9.5);
  EXPECT_FALSE(schedule.Next(10).has_value());
  EXPECT_EQ(schedule.CountUnsent(), 0);
}

TEST(LoadScheduleTest, TheOpenLoopCoversWarmUpAndDuration) {
  LoadSchedule schedule(OpenLoop(100), Mix(), 1);
  const std::vector<double> times = IntendedTimes(schedule);
  EXPECT_GE(times.front(), -1);
  EXPECT_LT(times.back(), 10);
  EXPECT_NEAR(static_cast<double>(times.size()), 1100, 5 * std::sqrt(1100.0));  // a Poisson count's variance is its mean
  EXPECT_EQ(schedule.CountUnsent(), 0);
}

TEST(LoadScheduleTest, ASlowServerDoesNotMoveTheIntendedTimes) {
  LoadSchedule quick(OpenLoop(100), Mix(), 1);
  const std::vector<double> times = IntendedTimes(quick);
  LoadSchedule slow(OpenLoop(100), Mix(), 1);
  for (std::size_t i = 0; times[i] < 0; ++i) ASSERT_EQ(slow.Next(-0.5)->intended_seconds, times[i]);
  const auto first_measured =
      static_cast<std::size_t>(std::count_if(times.begin(), times.end(), [](double t) { return t < 0; }));
  for (std::size_t i = first_measured; i < times.size(); ++i) ASSERT_EQ(slow.Next(11.9)->intended_seconds, times[i]);
}

TEST(LoadScheduleTest, SeedsDecideAndWorkDoesNotMoveArrivals) {
  LoadSchedule schedule(OpenLoop(100), Mix(), 1);
  LoadSchedule same(OpenLoop(100), Mix(), 1);
  LoadSchedule other_work(OpenLoop(100), Mix(/*decode_share=*/0.5), 1);
  LoadSchedule other_seed(OpenLoop(100), Mix(), 7);
  const std::vector<double> times = IntendedTimes(schedule);
  EXPECT_THAT(IntendedTimes(same), ElementsAreArray(times));
  EXPECT_THAT(IntendedTimes(other_work), ElementsAreArray(times));
  EXPECT_THAT(IntendedTimes(other_seed), Not(ElementsAreArray(times)));
}

TEST(LoadScheduleTest, WhatTheDrainDoesNotReachIsUnsent) {
  LoadSchedule whole(OpenLoop(100), Mix(), 1);
  std::int64_t num_measured = 0;
  for (const double time : IntendedTimes(whole)) num_measured += time >= 0 ? 1 : 0;

  LoadSchedule overloaded(OpenLoop(100), Mix(), 1);
  ASSERT_GE(overloaded.Next(0.5)->intended_seconds, 0);  // the warm-up's backlog is dropped
  ASSERT_TRUE(overloaded.Next(11.9).has_value());
  EXPECT_FALSE(overloaded.Next(12).has_value());
  EXPECT_EQ(overloaded.CountUnsent(), num_measured - 2);
}

}  // namespace
}  // namespace ridgeline::cli
