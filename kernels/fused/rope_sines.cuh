// Sines and cosines of one token's angles, in shared memory: a thread of the token works some of them out, all read them.
//
// A unit is two pairs, 16 bytes. Neighbouring threads read units that lie 2 or 4 apart, which would be in the same banks, so
// units change places among four: by one more with every eight.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fused/token_position.cuh"

namespace ridgeline::kernels::fused {

class TokenSines {
 public:
  // Of a token whose pairs number `num_pairs`.
  static constexpr int Units(int num_pairs) { return (num_pairs + 7) / 8 * 4; }

  __device__ __forceinline__ explicit TokenSines(float4* smem_units) : smem_units_(smem_units) {}

  // Pairs `first`, `first` + `step` and so on.
  __device__ __forceinline__ void Compute(const AngleArguments& angles, std::int64_t row, int first, int step) const {
    const int num_pairs = angles.rotary_dim / 2;
    if (first >= num_pairs) return;
    const std::int64_t position = PositionOf(angles, row);
    for (int pair = first; pair < num_pairs; pair += step) {
      const float revolutions = angles.rates.Revolutions(position, pair);
      float2* const to = reinterpret_cast<float2*>(smem_units_ + Place(pair / 2)) + pair % 2;
      sincospif(2 * revolutions, &to->x, &to->y);
    }
  }

  // Sine and cosine of one pair.
  __device__ __forceinline__ float2 Pair(int pair) const {
    return reinterpret_cast<const float2*>(smem_units_ + Place(pair / 2))[pair % 2];
  }
  // Of pairs 2 * unit and 2 * unit + 1.
  __device__ __forceinline__ float4 Unit(int unit) const { return smem_units_[Place(unit)]; }

 private:
  static __device__ __forceinline__ int Place(int unit) { return unit ^ ((unit >> 3) & 3); }

  float4* const smem_units_;  // [Units(num_pairs)]
};

}  // namespace ridgeline::kernels::fused
