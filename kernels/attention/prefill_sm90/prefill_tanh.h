// The soft cap's tanh, in float32 and without a branch.
#pragma once

#include <cstdint>

namespace ridgeline::kernels::attention {

// Arguments and results are in units in which a small argument is one below 2: what is not has a bit set that no small one has,
// and so have Inf and NaN.
inline constexpr float kTanhUnit = 0.3125f;
inline constexpr float kSmallTanh = 2;
inline constexpr std::uint32_t kNotSmallBit = 1u << 30;

// tanh(kTanhUnit * x) / kTanhUnit for |x| < kSmallTanh: x·P(x²), where P of degree 4 with P(0) = 1 was fitted to tanh(y) / y on
// |y| < 0.625 so that the largest relative error is least (Remez): 2^-22.9, and 2^-22 with roundings, near 0 too.
constexpr float TanhOfSmall(float x) {
  constexpr float kSquare = kTanhUnit * kTanhUnit;
  constexpr float kC1 = -0x1.5552bcp-2f * kSquare;
  constexpr float kC2 = 0x1.108d2ap-3f * kSquare * kSquare;
  constexpr float kC3 = -0x1.a98eacp-5f * kSquare * kSquare * kSquare;
  constexpr float kC4 = 0x1.f1ec1ep-7f * kSquare * kSquare * kSquare * kSquare;
  const float z = x * x;
  return x * (1 + z * (kC1 + z * (kC2 + z * (kC3 + z * kC4))));
}

}  // namespace ridgeline::kernels::attention
