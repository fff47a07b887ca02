// The angle of a rotary embedding, in revolutions: in double, so that the position 131071 of the fastest pair is as exact as
// the first, and less whole revolutions, so that float32 holds the rest.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/fused/fused.h"

#ifdef __CUDACC__
#define RIDGELINE_HOST_DEVICE_INLINE __host__ __device__ inline
#else
#define RIDGELINE_HOST_DEVICE_INLINE inline
#endif

namespace ridgeline::kernels::fused {

// Revolutions of one token's step, by pair: base^(-2p / rotary_dim) / (2 pi), as exp2(p * log2_step) * first.
struct RopeRates {
  double log2_step;

  RIDGELINE_HOST_DEVICE_INLINE double RevolutionsPerToken(int pair) const {
    constexpr double kRevolutionsPerRadian = 0.15915494309189533577;
    return exp2(pair * log2_step) * kRevolutionsPerRadian;
  }
  // In [-1/2, 1/2].
  RIDGELINE_HOST_DEVICE_INLINE float Revolutions(std::int64_t position, int pair) const {
    const double revolutions = static_cast<double>(position) * RevolutionsPerToken(pair);
    return static_cast<float>(revolutions - rint(revolutions));
  }
};

inline RopeRates RatesOf(const RopeOptions& rope) {
  return {.log2_step = -2 * std::log2(rope.base) / static_cast<double>(rope.rotary_dim)};
}

// The pair that an element of a head belongs to, and whether it is its second element. Of elements that turn.
struct PairElement {
  int pair;
  bool is_second;
};

RIDGELINE_HOST_DEVICE_INLINE PairElement PairOf(RopeLayout layout, int rotary_dim, int element) {
  if (layout == RopeLayout::kInterleaved) return {element / 2, element % 2 != 0};
  const int pairs = rotary_dim / 2;
  return {element % pairs, element >= pairs};
}

}  // namespace ridgeline::kernels::fused

#undef RIDGELINE_HOST_DEVICE_INLINE
