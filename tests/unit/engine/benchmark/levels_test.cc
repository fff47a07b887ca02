// Levels found in planted latency curves.
#include "server/engine/benchmark/levels.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::engine::benchmark {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// Working sets of 8, 16, 32, ... KiB.
std::vector<LatencySample> Curve(const std::vector<double>& nanoseconds) {
  std::vector<LatencySample> samples;
  std::int64_t bytes = 8 << 10;
  for (const double latency : nanoseconds) {
    samples.push_back({bytes, latency * 1e-9});
    bytes *= 2;
  }
  return samples;
}

TEST(LevelsTest, PlateausAreLevelsAndWhatLiesBetweenIsNone) {
  // L1 up to 32 KiB, L2 up to 512 KiB, then half of it, L3 up to 16 MiB, then memory.
  const auto levels = FindLevels(Curve({1.1, 1.1, 1.1, 3.5, 3.5, 3.5, 3.9, 7.0, 11, 12, 12.5, 13, 60, 110, 115}));
  ASSERT_THAT(levels, SizeIs(4));
  EXPECT_EQ(levels[0].largest_bytes, 32 << 10);
  EXPECT_DOUBLE_EQ(levels[0].seconds, 1.1e-9);
  EXPECT_EQ(levels[1].smallest_bytes, 64 << 10);
  EXPECT_EQ(levels[1].largest_bytes, 512 << 10);
  EXPECT_EQ(levels[2].smallest_bytes, 2 << 20);
  EXPECT_EQ(levels[2].largest_bytes, 16 << 20);
  EXPECT_EQ(levels[3].largest_bytes, 128 << 20);
  EXPECT_DOUBLE_EQ(levels[3].seconds, 112.5e-9);
}

TEST(LevelsTest, NoiseWithinALevelMakesNoOther) { EXPECT_THAT(FindLevels(Curve({1.0, 1.2, 1.1, 1.25, 1.0, 1.1})), SizeIs(1)); }

TEST(LevelsTest, ABumpDoesNotCutALevelInTwo) {
  const auto levels = FindLevels(Curve({1.0, 1.0, 1.4, 1.3, 1.3}));
  ASSERT_THAT(levels, SizeIs(1));
  EXPECT_EQ(levels[0].largest_bytes, 128 << 10);
}

TEST(LevelsTest, ASlopeWithoutPlateausHasNone) { EXPECT_THAT(FindLevels(Curve({1, 2, 4, 8, 16})), IsEmpty()); }

TEST(LevelsTest, OfOneSampleOrNoneThereIsNone) {
  EXPECT_THAT(FindLevels({}), IsEmpty());
  EXPECT_THAT(FindLevels(Curve({1})), IsEmpty());
}

}  // namespace
}  // namespace ridgeline::engine::benchmark
