// Statistics of a row, as parts of it that merge: of a warp's elements, a block's, a cluster's. All lanes that take part in a
// merge get the same result to the bit.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#include "kernels/common/approximate_math.cuh"

namespace ridgeline::kernels::fused {

inline constexpr int kWarpThreads = 32;

// combine(.., ..) of the values of `lanes` neighbouring lanes, a power of two; mostly it is a whole warp.
template <typename Combine>
__device__ __forceinline__ float CombineLanes(float value, int lanes, const Combine& combine) {
  if (lanes == kWarpThreads) {
#pragma unroll
    for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
      value = combine(value, __shfl_xor_sync(0xffffffff, value, distance));
    }
    return value;
  }
#pragma unroll 1
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  return value;
}

__device__ __forceinline__ float SumOfLanes(float value, int lanes) {
  return CombineLanes(value, lanes, [](float a, float b) { return a + b; });
}

__device__ __forceinline__ float MaxOfLanes(float value, int lanes) {
  return CombineLanes(value, lanes, [](float a, float b) { return fmaxf(a, b); });
}

// sum / count, rounded rightly but for rare last bits: the mean of equal elements is the element. A division by the special
// function unit, and a step of Newton's; a sum that is not finite gives NaN.
__device__ __forceinline__ float DivideByCount(float sum, float count) {
  const float inverse = ApproximateReciprocal(count);
  const float quotient = sum * inverse;
  return fmaf(fmaf(-quotient, count, sum), inverse, quotient);
}

// Mean and sum of squared distances to it. Parts merge without cancellation: their squares are about their own means, and the
// means' squared distances to the whole's come on top (Chan, Golub, LeVeque: "Updating formulae and a pairwise algorithm for
// computing sample variances", 1979).
struct MeanVariance {
  static constexpr int kFields = 3;
  float fields[kFields] = {0, 0, 0};  // count, mean, sum of squares

  __device__ __forceinline__ float mean() const { return fields[1]; }
  __device__ __forceinline__ float squares() const { return fields[2]; }
  __device__ __forceinline__ bool IsFinite() const { return isfinite(fields[2]) && isfinite(fields[1]); }

  __device__ __forceinline__ MeanVariance MergedOver(int lanes) const {
    const float count = SumOfLanes(fields[0], lanes);
    const float sum = SumOfLanes(fields[0] * fields[1], lanes);
    const float mean = count > 0 ? DivideByCount(sum, count) : 0.0f;
    const float distance = fields[1] - mean;
    return {{count, mean, SumOfLanes(fmaf(fields[0] * distance, distance, fields[2]), lanes)}};
  }
  __device__ __forceinline__ MeanVariance MergedWith(const MeanVariance& other) const {
    const float count = fields[0] + other.fields[0];
    const float share = count > 0 ? DivideByCount(other.fields[0], count) : 0.0f;
    const float distance = other.fields[1] - fields[1];
    return {
        {count, fmaf(distance, share, fields[1]), fmaf(distance * distance, fields[0] * share, fields[2] + other.fields[2])}};
  }
};

// Sums of a row's elements and of their squares, which merge by addition.
struct Moments {
  static constexpr int kFields = 2;
  float fields[kFields] = {0, 0};

  __device__ __forceinline__ float sum() const { return fields[0]; }
  __device__ __forceinline__ float squares() const { return fields[1]; }

  __device__ __forceinline__ Moments MergedOver(int lanes) const {
    return {{SumOfLanes(fields[0], lanes), SumOfLanes(fields[1], lanes)}};
  }
  __device__ __forceinline__ Moments MergedWith(const Moments& other) const {
    return {{fields[0] + other.fields[0], fields[1] + other.fields[1]}};
  }
};

struct SumOfSquares {
  static constexpr int kFields = 1;
  float fields[kFields] = {0};

  __device__ __forceinline__ float mean() const { return 0; }
  __device__ __forceinline__ float squares() const { return fields[0]; }
  __device__ __forceinline__ bool IsFinite() const { return isfinite(fields[0]); }

  __device__ __forceinline__ SumOfSquares MergedOver(int lanes) const { return {{SumOfLanes(fields[0], lanes)}}; }
  __device__ __forceinline__ SumOfSquares MergedWith(const SumOfSquares& other) const {
    return {{fields[0] + other.fields[0]}};
  }
};

// The largest element and the sum of exp(x - largest): the online softmax. A NaN is passed over by the maximum and stays in the
// sum.
struct MaxSum {
  static constexpr int kFields = 2;
  static constexpr float kLog2E = 1.442695041f;
  float fields[kFields] = {-INFINITY, 0};

  __device__ __forceinline__ float sum() const { return fields[1]; }
  // What is subtracted from x: among nothing but -inf, -inf - (-inf) would be NaN here and not where the row is divided.
  __device__ __forceinline__ float shift() const { return fields[0] == -INFINITY ? 0.0f : fields[0]; }
  __device__ __forceinline__ bool IsFinite() const { return true; }

  static __device__ __forceinline__ float Exp(float x) { return ApproximateExp2(kLog2E * x); }

  __device__ __forceinline__ MaxSum MergedOver(int lanes) const {
    MaxSum merged = {{MaxOfLanes(fields[0], lanes), 0}};
    merged.fields[1] = SumOfLanes(fields[1] * Exp(fields[0] - merged.shift()), lanes);
    return merged;
  }
  __device__ __forceinline__ MaxSum MergedWith(const MaxSum& other) const {
    MaxSum merged = {{fmaxf(fields[0], other.fields[0]), 0}};
    const float shift = merged.shift();
    merged.fields[1] = fields[1] * Exp(fields[0] - shift) + other.fields[1] * Exp(other.fields[0] - shift);
    return merged;
  }
};

}  // namespace ridgeline::kernels::fused
