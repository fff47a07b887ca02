// Random tensors and copies: the generator's published answers, its determinism, the distribution, and the copy's edges.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/data_type.h"
#include "kernels/common/float16.h"
#include "kernels/microbench/microbench.h"
#include "kernels/microbench/philox.h"
#include "tests/support/thread_executor.h"

namespace ridgeline::kernels::microbench {
namespace {

using support::ThreadExecutor;

constexpr std::uint64_t kSeed = 0x123456789abcdef0u;

// The known answers of the authors' library, Random123, file kat_vectors.
TEST(Philox4x32Test, GivesThePublishedAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

std::vector<float> Fill(std::int64_t elements, std::uint64_t seed, int num_slots, float mean = 0, float deviation = 1) {
  ThreadExecutor executor(num_slots);
  std::vector<float> values(elements);
  FillNormalOnCpu(DataType::kFloat32, elements, seed, mean, deviation, values.data(), executor);
  return values;
}

// Element `idx` by the formulas of microbench.h in double.
double ExpectedNormal(std::uint64_t seed, std::int64_t idx) {
  const PhiloxCounter bits = Philox4x32({static_cast<std::uint32_t>(idx / 4), static_cast<std::uint32_t>(idx / 4 >> 32), 0, 0},
                                        {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::int64_t pair = idx % 4 / 2;
  const double radius = std::sqrt(-2 * std::log((bits[2 * pair] + 0.5) * 0x1p-32));
  const double angle = 2 * std::numbers::pi * (bits[2 * pair + 1] + 0.5) * 0x1p-32;
  return radius * (idx % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

TEST(FillNormalTest, IsBoxMullerOverPhilox) {
  const std::vector<float> values = Fill(200'000, kSeed, 2);
  // The angle, up to 2 pi, is rounded to float32, and the radius, up to 6.7, multiplies that; the functions add a few ulp.
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], ExpectedNormal(kSeed, i), 5e-6) << i;
}

TEST(FillNormalTest, AnElementDependsOnSeedAndIndexAlone) {
  const std::vector<float> values = Fill(300'001, kSeed, 2);
  EXPECT_EQ(Fill(300'001, kSeed, 1), values);
  EXPECT_EQ(Fill(300'001, kSeed, 5), values);
  for (const std::int64_t length : {0, 1, 2, 3, 4, 5, 511, 512, 513, 65'535, 65'536, 65'537, 131'073}) {
    const std::vector<float> prefix = Fill(length, kSeed, 2);
    EXPECT_TRUE(std::equal(prefix.begin(), prefix.end(), values.begin())) << length;
  }
}

TEST(FillNormalTest, SeedsDifferInEitherHalf) {
  const std::vector<float> values = Fill(64, 1, 1);
  EXPECT_NE(Fill(64, 2, 1), values);
  EXPECT_NE(Fill(64, 1 + (std::uint64_t{1} << 32), 1), values);
}

// Share of a normal distribution beyond `deviations` on both sides.
double TailShare(double deviations) { return std::erfc(deviations / std::numbers::sqrt2); }

// Bounds are five standard errors; the seed is fixed, so a pass stays one.
TEST(FillNormalTest, HasMomentsAndTailsOfANormal) {
  constexpr std::int64_t kElements = 4'000'000;
  const std::vector<float> values = Fill(kElements, kSeed, 2, /*mean=*/3, /*deviation=*/2);
  double sum = 0, square = 0, cube = 0, fourth = 0, neighbours = 0, previous = 0;
  std::int64_t beyond[6] = {};
  for (const float value : values) {
    const double z = (value - 3.0) / 2.0;
    sum += z;
    square += z * z;
    cube += z * z * z;
    fourth += z * z * z * z;
    neighbours += z * previous;
    previous = z;
    for (int deviations = 1; deviations <= 5; ++deviations) beyond[deviations] += std::abs(z) > deviations ? 1 : 0;
  }
  const double root = std::sqrt(static_cast<double>(kElements));
  EXPECT_NEAR(sum / kElements, 0, 5 / root);
  EXPECT_NEAR(square / kElements, 1, 5 * std::sqrt(2.0) / root);
  EXPECT_NEAR(cube / kElements, 0, 5 * std::sqrt(15.0) / root);
  EXPECT_NEAR(fourth / kElements, 3, 5 * std::sqrt(96.0) / root);
  EXPECT_NEAR(neighbours / kElements, 0, 5 / root);
  for (int deviations = 1; deviations <= 5; ++deviations) {
    const double want = kElements * TailShare(deviations);
    EXPECT_NEAR(beyond[deviations], want, 5 * std::sqrt(want)) << deviations;
  }
}

TEST(FillNormalTest, SixteenBitTypesAreTheSameNormalsRounded) {
  constexpr std::int64_t kElements = 70'003;
  ThreadExecutor executor(2);
  const std::vector<float> values = Fill(kElements, kSeed, 2, 0.5f, 3);
  std::vector<Float16> halves(kElements);
  std::vector<BFloat16> brains(kElements);
  FillNormalOnCpu(DataType::kFloat16, kElements, kSeed, 0.5f, 3, halves.data(), executor);
  FillNormalOnCpu(DataType::kBFloat16, kElements, kSeed, 0.5f, 3, brains.data(), executor);
  for (std::int64_t i = 0; i < kElements; ++i) {
    ASSERT_EQ(halves[i].bits, ToFloat16(values[i]).bits) << i;
    ASSERT_EQ(brains[i].bits, ToBFloat16(values[i]).bits) << i;
  }
}

TEST(FillNormalTest, DeviationZeroGivesTheMean) {
  for (const float value : Fill(1000, kSeed, 1, /*mean=*/-2.5f, /*deviation=*/0)) ASSERT_EQ(value, -2.5f);
}

TEST(CopyTest, CopiesEveryByteAndNoMore) {
  ThreadExecutor executor(2);
  constexpr std::int64_t kGuard = 100;
  constexpr std::int64_t kTask = 256 << 10;
  constexpr std::int64_t kStreamed = 32 << 20;
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{63}, kTask - 1, kTask, kTask + 1,
                                   kStreamed - 1, kStreamed, kStreamed + 12'345}) {
    std::vector<std::uint8_t> source(bytes);
    for (std::int64_t i = 0; i < bytes; ++i) source[i] = static_cast<std::uint8_t>(i * 2654435761u >> 24);
    for (const std::int64_t misaligned : {0, 1, 37}) {
      std::vector<std::uint8_t> destination(bytes + 2 * kGuard, 0xa5);
      CopyOnCpu(destination.data() + misaligned, source.data(), bytes, executor);
      ASSERT_TRUE(std::equal(source.begin(), source.end(), destination.begin() + misaligned)) << bytes;
      for (std::int64_t i = 0; i < misaligned; ++i) ASSERT_EQ(destination[i], 0xa5) << bytes;
      for (std::size_t i = misaligned + bytes; i < destination.size(); ++i) ASSERT_EQ(destination[i], 0xa5) << bytes;
    }
  }
}

}  // namespace
}  // namespace ridgeline::kernels::microbench
