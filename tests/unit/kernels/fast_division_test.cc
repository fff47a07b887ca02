// Against the division of the language.
#include "kernels/common/fast_division.h"

#include <cstdint>
#include <random>

#include "gtest/gtest.h"

namespace ridgeline::kernels {
namespace {

constexpr std::uint32_t kMostDividend = 1u << 29;

void ExpectExact(std::uint32_t divisor, std::uint32_t dividend) {
  if (dividend > kMostDividend) return;
  EXPECT_EQ(FastDivision(divisor).Quotient(dividend), dividend / divisor) << dividend << " / " << divisor;
}

TEST(FastDivisionTest, AboutEveryMultipleNearTheEnds) {
  for (std::uint32_t divisor = 1; divisor <= 1000; ++divisor) {
    for (std::uint32_t quotient = 0; quotient < 200; ++quotient) {
      for (const std::uint32_t base : {quotient * divisor, (kMostDividend / divisor - quotient) * divisor}) {
        for (const std::uint32_t dividend : {base - 1, base, base + 1}) ExpectExact(divisor, dividend);
      }
    }
  }
}

TEST(FastDivisionTest, DrawnAtRandom) {
  std::mt19937 random(5);
  for (int i = 0; i < 1000000; ++i) {
    const std::uint32_t divisor = 1 + random() % (1 << 16);
    ExpectExact(divisor, random() % (kMostDividend + 1));
  }
}

TEST(FastDivisionTest, KnowsItsDivisor) {
  EXPECT_EQ(FastDivision(100).divisor(), 100u);
  EXPECT_EQ(FastDivision().Quotient(7), 7u);
}

}  // namespace
}  // namespace ridgeline::kernels
