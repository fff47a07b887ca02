// The soft cap's polynomial against the tanh of doubles.
#include "kernels/attention/prefill_sm90/prefill_tanh.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "gtest/gtest.h"

namespace ridgeline::kernels::attention {
namespace {

double Exact(float x) { return std::tanh(double{kTanhUnit} * double{x}) / double{kTanhUnit}; }

TEST(PrefillTanhTest, SmallArgumentsAreAsPreciseAsFloat32) {
  const auto least = std::bit_cast<std::uint32_t>(0x1p-126f), end = std::bit_cast<std::uint32_t>(kSmallTanh);
  for (std::uint32_t bits = least; bits < end; bits += 977) {
    const auto x = std::bit_cast<float>(bits);
    ASSERT_NEAR(double{TanhOfSmall(x)} / Exact(x), 1, 0x1p-22) << x;
    ASSERT_EQ(TanhOfSmall(-x), -TanhOfSmall(x)) << x;
  }
}

TEST(PrefillTanhTest, TinyArgumentsAndNothing) {
  for (const float x : {0.0f, 0x1p-149f, 0x1p-140f, 0x1p-126f, 0x1p-20f}) EXPECT_EQ(TanhOfSmall(x), x);
  EXPECT_TRUE(std::isnan(TanhOfSmall(std::nanf(""))));
}

// The kernel tells small arguments from others by one bit of them.
TEST(PrefillTanhTest, SmallnessIsABit) {
  const auto has_bit = [](float x) { return (std::bit_cast<std::uint32_t>(x) & kNotSmallBit) != 0; };
  for (const float x : {0.0f, 1.0f, std::nextafter(kSmallTanh, 0.0f)}) {
    EXPECT_FALSE(has_bit(x));
    EXPECT_FALSE(has_bit(-x));
  }
  for (const float x : {kSmallTanh, 3.0f, 1e30f, HUGE_VALF, std::nanf("")}) {
    EXPECT_TRUE(has_bit(x)) << x;
    EXPECT_TRUE(has_bit(-x)) << x;
  }
}

}  // namespace
}  // namespace ridgeline::kernels::attention
