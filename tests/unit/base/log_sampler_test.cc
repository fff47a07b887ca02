#include "server/base/log_sampler.h"

#include <optional>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace ridgeline::base {
namespace {

TEST(LogSampler, LetsAFewThroughEachSecondAndTellsOfTheOthers) {
  LogSampler sampler(2);
  absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  EXPECT_EQ(sampler.Admit(now), 0);
  EXPECT_EQ(sampler.Admit(now), 0);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(sampler.Admit(now + absl::Milliseconds(9 * i)), std::nullopt);
  now += absl::Seconds(1);
  EXPECT_EQ(sampler.Admit(now), 100) << "the first of the next second tells of them";
  EXPECT_EQ(sampler.Admit(now), 0);
  EXPECT_EQ(sampler.Admit(now), std::nullopt);
}

TEST(LogSampler, WhatComesRarelyAlwaysPasses) {
  LogSampler sampler(1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(sampler.Admit(absl::FromUnixSeconds(1'700'000'000 + i)), 0);
}

}  // namespace
}  // namespace ridgeline::base
