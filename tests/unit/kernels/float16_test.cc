// The 16-bit types, scalar and over arrays on every SIMD target of this processor: bit for bit, all patterns.
#include "kernels/common/float16.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kernels/common/convert.h"
#include "kernels/common/data_type.h"

namespace ridgeline::kernels {
namespace {

constexpr int kNumPatterns = 1 << 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint32_t Bits(float value) { return std::bit_cast<std::uint32_t>(value); }

template <typename T>
T FromBits(int bits) {
  return {static_cast<std::uint16_t>(bits)};
}

template <typename T>
T Round(float value);
template <>
BFloat16 Round(float value) {
  return ToBFloat16(value);
}
template <>
Float16 Round(float value) {
  return ToFloat16(value);
}

template <typename T>
class SixteenBitTest : public ::testing::Test {};
using SixteenBitTypes = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(SixteenBitTest, SixteenBitTypes);

TYPED_TEST(SixteenBitTest, EveryPatternSurvivesFloat32) {
  for (int bits = 0; bits < kNumPatterns; ++bits) {
    const TypeParam value = FromBits<TypeParam>(bits);
    const TypeParam back = Round<TypeParam>(ToFloat(value));
    if (std::isnan(ToFloat(value))) {
      EXPECT_TRUE(std::isnan(ToFloat(back))) << bits;
      EXPECT_EQ(back.bits & 0x8000, bits & 0x8000) << bits;
    } else {
      EXPECT_EQ(back.bits, bits);
    }
  }
}

// Between any two neighbours: just below the middle, the middle, just above.
TYPED_TEST(SixteenBitTest, RoundsToNearestAndTiesToEven) {
  const int largest = Round<TypeParam>(kInfinity).bits - 1;
  for (int bits = 0; bits < largest; ++bits) {
    const double below = ToFloat(FromBits<TypeParam>(bits));
    const double above = ToFloat(FromBits<TypeParam>(bits + 1));
    const float middle = static_cast<float>((below + above) / 2);  // one bit more than the type has: exact in float32
    if (middle == below) continue;                                 // bfloat16's least subnormal and 0 are neighbours in float32
    const int even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(Round<TypeParam>(middle).bits, even) << bits;
    ASSERT_EQ(Round<TypeParam>(std::nextafter(middle, 0.0f)).bits, bits) << bits;
    ASSERT_EQ(Round<TypeParam>(std::nextafter(middle, kInfinity)).bits, bits + 1) << bits;
    ASSERT_EQ(Round<TypeParam>(-middle).bits, even | 0x8000) << bits;
  }
}

TYPED_TEST(SixteenBitTest, LargeValuesRoundToInfinity) {
  const TypeParam infinity = Round<TypeParam>(kInfinity);
  const float largest = ToFloat(FromBits<TypeParam>(infinity.bits - 1));
  const float step = largest - ToFloat(FromBits<TypeParam>(infinity.bits - 2));
  EXPECT_EQ(ToFloat(infinity), kInfinity);
  EXPECT_EQ(Round<TypeParam>(largest + step / 4).bits, infinity.bits - 1);
  EXPECT_EQ(Round<TypeParam>(largest + step / 2).bits, infinity.bits);
  EXPECT_EQ(Round<TypeParam>(std::numeric_limits<float>::max()).bits, infinity.bits);
  EXPECT_EQ(Round<TypeParam>(-std::numeric_limits<float>::max()).bits, infinity.bits | 0x8000);
}

TYPED_TEST(SixteenBitTest, NaNWithPayloadInLowBitsStaysNaN) {
  EXPECT_TRUE(std::isnan(ToFloat(Round<TypeParam>(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(ToFloat(Round<TypeParam>(std::bit_cast<float>(0xff800001u)))));
}

#ifdef __FLT16_MANT_DIG__  // the compiler has a binary16 of its own
TEST(Float16Test, AgreesWithTheCompilersType) {
  for (int bits = 0; bits < kNumPatterns; ++bits) {
    const float want = static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits)));
    ASSERT_EQ(Bits(ToFloat(FromBits<Float16>(bits))), Bits(want)) << bits;
  }
  constexpr std::uint32_t kStride = 10007;  // a prime: all exponents and every kind of mantissa
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += kStride) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    ASSERT_EQ(ToFloat16(value).bits, std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))) << value;
  }
}
#endif

// Runs `body` once for each SIMD target that this build contains and this processor has.
template <typename Body>
void ForEachTarget(Body body) {
  for (std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS; targets != 0; targets &= targets - 1) {
    const std::int64_t target = targets & -targets;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();  // the next call finds the best target again
}

template <typename T>
void ExpectArraysAgreeWithScalars(DataType type) {
  std::vector<T> narrow(kNumPatterns);
  for (int bits = 0; bits < kNumPatterns; ++bits) narrow[bits].bits = static_cast<std::uint16_t>(bits);
  std::vector<float> wide(kNumPatterns);
  ConvertToFloat32(type, narrow.data(), kNumPatterns, wide.data());
  for (int i = 0; i < kNumPatterns; ++i) ASSERT_EQ(Bits(wide[i]), Bits(ToFloat(narrow[i]))) << i;

  constexpr std::uint32_t kStride = 641;  // a prime: 6.7 million values
  std::uint32_t bits = 0;
  for (std::uint64_t done = 0; done < (std::uint64_t{1} << 32) / kStride; done += wide.size()) {
    for (float& value : wide) value = std::bit_cast<float>(bits += kStride);
    ConvertFromFloat32(type, wide.data(), kNumPatterns, narrow.data());
    for (int i = 0; i < kNumPatterns; ++i) ASSERT_EQ(narrow[i].bits, Round<T>(wide[i]).bits) << wide[i];
  }
}

TEST(ConvertTest, AgreesWithScalarsOnEveryTarget) {
  ForEachTarget([] {
    ExpectArraysAgreeWithScalars<BFloat16>(DataType::kBFloat16);
    ExpectArraysAgreeWithScalars<Float16>(DataType::kFloat16);
  });
}

TEST(ConvertTest, TouchesNothingBeyondTheEnd) {
  constexpr int kMost = 67;
  std::vector<float> wide(kMost, 1.0f);
  ForEachTarget([&] {
    for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
      for (int count = 0; count < kMost; ++count) {
        std::vector<std::uint8_t> narrow(kMost * ElementBytes(type), 0xa5);
        ConvertFromFloat32(type, wide.data(), count, narrow.data());
        for (std::size_t i = count * ElementBytes(type); i < narrow.size(); ++i) ASSERT_EQ(narrow[i], 0xa5) << count;
        std::vector<float> back(kMost, 7.0f);
        ConvertToFloat32(type, narrow.data(), count, back.data());
        for (int i = 0; i < kMost; ++i) ASSERT_EQ(back[i], i < count ? 1.0f : 7.0f) << count;
      }
    }
  });
}

}  // namespace
}  // namespace ridgeline::kernels
