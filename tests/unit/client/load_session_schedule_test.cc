#include "client/cli/load_session_schedule.h"

#include <optional>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::cli {
namespace {

constexpr std::uint64_t kSeed = 3;

SessionMix Mix() {
  SessionMix mix;
  mix.context = *LengthDistribution::Parse("context", "uniform:100,200");
  mix.decode_tokens = *LengthDistribution::Parse("decode_tokens", "fixed:50");
  return mix;
}

TEST(SessionScheduleTest, AClosedLoopSplitsItsClientsAndStaggersTheirFirstRounds) {
  SessionMix mix = Mix();
  mix.decode_share = 0.75;
  SessionSchedule schedule({/*warm_up_seconds=*/1, /*duration_seconds=*/10, 0, std::nullopt}, mix, 8, kSeed);
  EXPECT_FALSE(schedule.open_loop());
  std::set<std::int64_t> first_rounds;
  for (int client = 0; client < 8; ++client) {
    const std::optional<SessionPlan> plan = schedule.Next(client, -1);
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->intended_seconds, -1);
    const bool decodes = client < 6;
    EXPECT_EQ(plan->fill_tokens > 0, decodes);
    EXPECT_EQ(plan->prefill_tokens > 0, !decodes);
    EXPECT_EQ(plan->decode_tokens, decodes ? 50 : 0);
    EXPECT_LE(plan->first_decode_tokens, plan->decode_tokens);
    if (decodes) first_rounds.insert(plan->first_decode_tokens);
  }
  EXPECT_GT(first_rounds.size(), 3);
  EXPECT_EQ(schedule.Next(0, 9.9)->first_decode_tokens, 50);  // only the first round is cut
  EXPECT_FALSE(schedule.Next(0, 10).has_value());
  EXPECT_EQ(schedule.CountUnsent(), 0);
}

TEST(SessionScheduleTest, APoissonLoopHasItsRateWhoeverAsks) {
  const LoadTiming timing = {/*warm_up_seconds=*/0, /*duration_seconds=*/100, /*drain_seconds=*/1, /*rate_per_second=*/20};
  SessionSchedule schedule(timing, Mix(), 4, kSeed);
  std::vector<double> times;
  for (int client = 0;; client = (client + 1) % 4) {
    const std::optional<SessionPlan> plan = schedule.Next(client, /*now_seconds=*/50);
    if (!plan.has_value()) break;
    EXPECT_EQ(plan->fill_tokens, 0);
    EXPECT_GE(plan->prefill_tokens, 100);
    EXPECT_EQ(plan->first_decode_tokens, 50);
    if (!times.empty()) {
      EXPECT_GE(plan->intended_seconds, times.back());
    }
    times.push_back(plan->intended_seconds);
  }
  // 2000 are expected, with a standard deviation of 45.
  EXPECT_NEAR(times.size(), 2000, 250);
  EXPECT_LT(times.back(), 100);
  EXPECT_EQ(schedule.CountUnsent(), 0);
}

TEST(SessionScheduleTest, WhatIsLateAfterTheWarmUpIsDroppedAndTheDrainEnds) {
  SessionMix mix = Mix();
  mix.trace = {{0, 10, 1}, {1, 20, 2}, {2, 30, 3}, {3, 40, 4}, {20, 50, 5}};
  const LoadTiming timing = {/*warm_up_seconds=*/1.5, /*duration_seconds=*/10, /*drain_seconds=*/2, std::nullopt};
  SessionSchedule schedule(timing, mix, 1, kSeed);
  EXPECT_TRUE(schedule.open_loop());
  const std::optional<SessionPlan> first = schedule.Next(0, -1.5);
  EXPECT_EQ(first->prefill_tokens, 10);
  EXPECT_EQ(first->intended_seconds, -1.5);
  EXPECT_EQ(schedule.Next(0, 0)->prefill_tokens, 30);  // the second belonged to the warm-up
  EXPECT_FALSE(schedule.Next(0, 12).has_value());
  EXPECT_EQ(schedule.CountUnsent(), 1);  // the last is beyond the end
}

TEST(SessionScheduleTest, TheLongestSession) {
  SessionMix mix = Mix();
  const std::int64_t longest = SessionSchedule({0, 1, 0, std::nullopt}, mix, 1, kSeed).LongestSession();
  EXPECT_GE(longest, 240);
  EXPECT_LE(longest, 250);
  mix.trace = {{0, 10, 1}, {1, 20, 2}, {2, 5, 3}};
  EXPECT_EQ(SessionSchedule({0, 1, 0, std::nullopt}, mix, 1, kSeed).LongestSession(), 22);
}

}  // namespace
}  // namespace ridgeline::cli
