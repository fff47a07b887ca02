// Statistics against planted distributions, whose answers are known.
#include "server/engine/measure/statistics.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace ridgeline::engine::measure {
namespace {

std::vector<double> Integers(int first, int last) {
  std::vector<double> values;
  for (int i = first; i <= last; ++i) values.push_back(i);
  return values;
}

TEST(StatisticsTest, OfNothingIsNothing) {
  const Statistics statistics = Summarise({});
  EXPECT_EQ(statistics.samples, 0);
  EXPECT_EQ(statistics.median, 0);
  EXPECT_EQ(statistics.relative_noise, 0);
}

TEST(StatisticsTest, OfOneSampleIsThatSampleAndSaysNothingOfNoise) {
  const Statistics statistics = Summarise({4});
  EXPECT_EQ(statistics.samples, 1);
  for (const double value : {statistics.median, statistics.mean, statistics.minimum, statistics.p5, statistics.p95}) {
    EXPECT_EQ(value, 4);
  }
  EXPECT_EQ(statistics.standard_deviation, 0);
  EXPECT_EQ(statistics.relative_noise, std::numeric_limits<double>::infinity());
}

TEST(StatisticsTest, OrderDoesNotMatter) {
  const Statistics statistics = Summarise({5, 1, 4, 2, 3});
  EXPECT_EQ(statistics.median, 3);
  EXPECT_EQ(statistics.minimum, 1);
  EXPECT_EQ(statistics.mean, 3);
  EXPECT_DOUBLE_EQ(statistics.standard_deviation, std::sqrt(2.5));
}

TEST(StatisticsTest, PercentilesLieBetweenRanks) {
  const Statistics even = Summarise({1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(even.median, 2.5);
  EXPECT_DOUBLE_EQ(even.p5, 1.15);
  EXPECT_DOUBLE_EQ(even.p95, 3.85);
  const Statistics hundred_and_one = Summarise(Integers(0, 100));
  EXPECT_DOUBLE_EQ(hundred_and_one.p5, 5);
  EXPECT_DOUBLE_EQ(hundred_and_one.p95, 95);
}

TEST(StatisticsTest, EqualSamplesHaveNoNoise) {
  EXPECT_EQ(Summarise(std::vector<double>(10, 3.0)).relative_noise, 0);
  EXPECT_EQ(Summarise(std::vector<double>(kMinSamplesForNoise, 3.0)).relative_noise, 0);
  EXPECT_EQ(Summarise(std::vector<double>(kMinSamplesForNoise - 1, 3.0)).relative_noise,
            std::numeric_limits<double>::infinity());
}

TEST(StatisticsTest, NoiseOfFewSamplesIsTheirWholeRange) {
  EXPECT_DOUBLE_EQ(Summarise(Integers(1, 6)).relative_noise, 2.5 / 3.5);
}

// Ranks 40 to 59 of 100 hold the median with 95 %.
TEST(StatisticsTest, NoiseIsReadOffTheRanks) {
  EXPECT_DOUBLE_EQ(Summarise(Integers(1, 100)).relative_noise, (60.0 - 41.0) / 2 / 50.5);
}

TEST(StatisticsTest, OutliersMoveTheMeanAndNotTheMedianNorItsNoise) {
  std::vector<double> samples(99, 1.0);
  samples.push_back(1e6);
  const Statistics statistics = Summarise(samples);
  EXPECT_EQ(statistics.median, 1);
  EXPECT_EQ(statistics.relative_noise, 0);
  EXPECT_GT(statistics.mean, 1000);
  EXPECT_GT(statistics.standard_deviation, 1e4);
}

// The promise itself: the interval holds the true median in 95 of 100 cases, for a normal and for a lopsided distribution.
template <typename Draw>
double CoverageOf(double true_median, Draw draw) {
  std::mt19937_64 random(7);
  constexpr int kTrials = 2000;
  int covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> samples;
    for (int i = 0; i < 101; ++i) samples.push_back(draw(random));
    const Statistics statistics = Summarise(samples);
    // The interval need not be symmetric; half its width to either side is what a reader takes it for.
    covered += std::abs(statistics.median - true_median) <= statistics.relative_noise * statistics.median ? 1 : 0;
  }
  return static_cast<double>(covered) / kTrials;
}

TEST(StatisticsTest, TheIntervalHoldsTheMedianOfANormalDistribution) {
  std::normal_distribution<double> normal(100, 5);
  EXPECT_NEAR(CoverageOf(100, [&](auto& random) { return normal(random); }), 0.95, 0.02);
}

TEST(StatisticsTest, TheIntervalHoldsTheMedianOfALopsidedDistribution) {
  std::exponential_distribution<double> exponential(1);
  EXPECT_NEAR(CoverageOf(10 + std::log(2), [&](auto& random) { return 10 + exponential(random); }), 0.95, 0.03);
}

TEST(StatisticsTest, NoiseShrinksWithTheRootOfTheSamples) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(100, 5);
  const auto noise_of = [&](int count) {
    std::vector<double> samples;
    for (int i = 0; i < count; ++i) samples.push_back(normal(random));
    return Summarise(samples).relative_noise;
  };
  EXPECT_NEAR(noise_of(100) / noise_of(10000), 10, 4);
}

}  // namespace
}  // namespace ridgeline::engine::measure
