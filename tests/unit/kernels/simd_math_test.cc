// exp and tanh over all of float32: a stride that is prime to powers of two visits every exponent with mantissas of every kind.
#include "kernels/common/simd_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ridgeline::kernels {
namespace {

constexpr std::uint32_t kStride = 211;
constexpr double kMaxUlp = 2;

// The distance between float32 numbers around `value`.
double Ulp(double value) {
  constexpr double kLeastNormal = std::numeric_limits<float>::min();
  int exponent = 0;
  std::frexp(std::max(std::abs(value), kLeastNormal), &exponent);
  return std::ldexp(1.0, exponent - std::numeric_limits<float>::digits);
}

// Error in ulp; infinite unless NaN and overflow are where they should be.
double ErrorInUlp(float got, double want) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : kInfinity;
  if (got == static_cast<float>(want)) return 0;
  return std::isinf(got) ? kInfinity : std::abs(got - want) / Ulp(want);
}

void ExpectWithin2Ulp(void (*function)(const float*, float*, std::int64_t), double (*reference)(double)) {
  std::vector<float> from;
  for (std::uint64_t bits = 0; bits <= std::numeric_limits<std::uint32_t>::max(); bits += kStride) {
    from.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  std::vector<float> to(from.size());
  function(from.data(), to.data(), static_cast<std::int64_t>(from.size()));

  double worst = -1;
  float worst_from = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const double error = ErrorInUlp(to[i], reference(from[i]));
    if (error > worst) {
      worst = error;
      worst_from = from[i];
    }
  }
  EXPECT_TRUE(worst <= kMaxUlp) << worst << " ulp at " << worst_from;
  ::testing::Test::RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(SimdMathTest, ExpIsWithin2UlpEverywhere) { ExpectWithin2Ulp(ExpArray, std::exp); }

TEST(SimdMathTest, TanhIsWithin2UlpEverywhere) { ExpectWithin2Ulp(TanhArray, std::tanh); }

float ExpOf(float x) {
  ExpArray(&x, &x, 1);
  return x;
}

float TanhOf(float x) {
  TanhArray(&x, &x, 1);
  return x;
}

TEST(SimdMathTest, Limits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(ExpOf(0), 1);
  EXPECT_EQ(ExpOf(-kInfinity), 0);
  EXPECT_EQ(ExpOf(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(ExpOf(kNaN)));
  EXPECT_EQ(ExpOf(-103), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(TanhOf(kInfinity), 1);
  EXPECT_EQ(TanhOf(-kInfinity), -1);
  EXPECT_TRUE(std::isnan(TanhOf(kNaN)));
  EXPECT_TRUE(std::signbit(TanhOf(-0.0f)));
}

TEST(SimdMathTest, WritesNoMoreThanCount) {
  for (std::int64_t count = 0; count <= 33; ++count) {
    std::vector<float> from(count, 0.5f), to(count + 1, -7);
    ExpArray(from.data(), to.data(), count);
    for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(to[i], to[0]);
    EXPECT_EQ(to[count], -7);
  }
}

}  // namespace
}  // namespace ridgeline::kernels
