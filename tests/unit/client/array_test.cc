#include "client/cpp/array.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::client {
namespace {

using support::StatusIs;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

Array Doubles(const std::vector<double>& values) {
  return {ElementType::kFloat64, {static_cast<std::int64_t>(values.size())}, BytesOf(values)};
}

std::uint16_t RoundedBits(double value, ElementType type) {
  const Array narrow = ConvertTo(Doubles({value}), type);
  std::uint16_t bits;
  std::memcpy(&bits, narrow.bytes.data(), sizeof(bits));
  return bits;
}

class NarrowTypeTest : public ::testing::TestWithParam<ElementType> {};

TEST_P(NarrowTypeTest, EveryBitPatternSurvivesWideningAndRounding) {
  std::vector<std::uint16_t> patterns;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) patterns.push_back(static_cast<std::uint16_t>(bits));
  const Array narrow{GetParam(), {65536}, BytesOf(patterns)};
  const Array back = ConvertTo(ConvertTo(narrow, ElementType::kFloat64), GetParam());
  for (std::int64_t i = 0; i < 65536; ++i) {
    if (std::isnan(ElementAt(narrow, i))) {
      EXPECT_TRUE(std::isnan(ElementAt(back, i))) << i;  // the payload may change
    } else {
      std::uint16_t bits;
      std::memcpy(&bits, &back.bytes[2 * i], sizeof(bits));
      ASSERT_EQ(bits, i);
    }
  }
}

// Between neighbours, whatever their exponents: below the middle down, above it up, at the middle to the even one.
TEST_P(NarrowTypeTest, RoundsToTheNearestAndTiesToEven) {
  for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const Array pair{GetParam(), {2}, BytesOf<std::uint16_t>({bits, static_cast<std::uint16_t>(bits + 1)})};
    const double low = ElementAt(pair, 0);
    const double high = ElementAt(pair, 1);
    if (!std::isfinite(high)) break;
    const double middle = low + (high - low) / 2;
    ASSERT_EQ(RoundedBits(std::nextafter(middle, low), GetParam()), bits);
    ASSERT_EQ(RoundedBits(std::nextafter(middle, high), GetParam()), bits + 1);
    ASSERT_EQ(RoundedBits(middle, GetParam()), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(RoundedBits(-middle, GetParam()), 0x8000 + (bits % 2 == 0 ? bits : bits + 1));
  }
}

INSTANTIATE_TEST_SUITE_P(All, NarrowTypeTest, ::testing::Values(ElementType::kFloat16, ElementType::kBfloat16),
                         [](const auto& type) { return std::string(ElementTypeName(type.param)); });

TEST(ConvertToTest, KnownBits) {
  EXPECT_EQ(RoundedBits(1.0, ElementType::kFloat16), 0x3c00);
  EXPECT_EQ(RoundedBits(65504, ElementType::kFloat16), 0x7bff);  // the largest
  EXPECT_EQ(RoundedBits(65519.99, ElementType::kFloat16), 0x7bff);
  EXPECT_EQ(RoundedBits(65520, ElementType::kFloat16), 0x7c00);  // a tie with what would be the next: infinity is even
  EXPECT_EQ(RoundedBits(1e300, ElementType::kFloat16), 0x7c00);
  EXPECT_EQ(RoundedBits(0x1p-24, ElementType::kFloat16), 0x0001);  // the smallest
  EXPECT_EQ(RoundedBits(0x1p-25, ElementType::kFloat16), 0x0000);
  EXPECT_EQ(RoundedBits(-1e-300, ElementType::kFloat16), 0x8000);
  EXPECT_EQ(RoundedBits(1.0, ElementType::kBfloat16), 0x3f80);
  EXPECT_EQ(RoundedBits(-kInfinity, ElementType::kBfloat16), 0xff80);
  // By way of float32 this would tie, and go down to even.
  EXPECT_EQ(RoundedBits(1 + 0x1p-11 + 0x1p-40, ElementType::kFloat16), 0x3c01);
}

TEST(ByteCountTest, ChecksSignsAndOverflow) {
  EXPECT_EQ(ByteCount({2, 3}, 4), 24);
  EXPECT_EQ(ByteCount({}, 8), 8);
  EXPECT_EQ(ByteCount({5, 0, 7}, 4), 0);
  EXPECT_EQ(ByteCount({-1}, 4), std::nullopt);
  EXPECT_EQ(ByteCount({std::int64_t{1} << 40, std::int64_t{1} << 40}, 1), std::nullopt);
}

TEST(LargestDifferenceTest, FindsTheWorstElement) {
  ASSERT_OK_AND_ASSIGN(const Difference difference, LargestDifference(Doubles({1, 2, 3}), Doubles({1, 2.5, 3.1})));
  EXPECT_EQ(difference.max_abs, 0.5);
  EXPECT_EQ(difference.element_idx, 1);
  EXPECT_EQ(difference.got, 2);
  EXPECT_EQ(difference.want, 2.5);
}

TEST(LargestDifferenceTest, WhatIsNotFiniteMustMatchInPlace) {
  const auto max_abs = [](double got, double want) { return LargestDifference(Doubles({got}), Doubles({want}))->max_abs; };
  EXPECT_EQ(max_abs(-kInfinity, -kInfinity), 0);
  EXPECT_EQ(max_abs(kNaN, kNaN), 0);
  EXPECT_EQ(max_abs(kNaN, 1), kInfinity);
  EXPECT_EQ(max_abs(1, kNaN), kInfinity);
  EXPECT_EQ(max_abs(kInfinity, -kInfinity), kInfinity);
  EXPECT_EQ(max_abs(-kInfinity, 0), kInfinity);
}

TEST(LargestDifferenceTest, TypesMayDifferButShapesMayNot) {
  const Array half = ConvertTo(Doubles({0.5}), ElementType::kFloat16);
  EXPECT_EQ(LargestDifference(half, Doubles({0.5}))->max_abs, 0);
  EXPECT_THAT(LargestDifference(Doubles({1}), Doubles({1, 2})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[1] against [2]")));
}

}  // namespace
}  // namespace ridgeline::client
