// Activation functions in device code. For 16-bit types they are a few instructions long, because the kernels they are part of
// move four bytes an element and have time for about thirty.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/common/approximate_math.cuh"
#include "kernels/fused/fused.h"

namespace ridgeline::kernels::fused {

// x / (1 + exp(-y)).
__device__ __forceinline__ float TimesSigmoid(float x, float y) {
  constexpr float kLog2E = 1.442695041f;
  return x * ApproximateReciprocal(1.0f + ApproximateExp2(-kLog2E * y));
}

// 1 + tanh(u) is 2 / (1 + exp(-2u)), which loses nothing where tanh(u) is near -1.
__device__ __forceinline__ float GeluTanh(float x) {
  constexpr float kFactor = 1.595769122f;  // 2 * sqrt(2 / pi)
  return TimesSigmoid(x, x * fmaf(0.044715f * kFactor, x * x, kFactor));
}

// x times the normal distribution function. Its tail is exp(-x^2 / 2) times a function of t = 1 / (1 + p|x|) that is nearly
// straight: a polynomial minimax in relative error (1.1e-5 up to |x| = 6, 1.1e-3 at 12), which 16-bit results don't show. The
// function is the tail where x < 0, and what the tail leaves of 1 where x > 0: |[x > 0] - tail|.
__device__ __forceinline__ float GeluErfFor16Bits(float x) {
  const float t = ApproximateReciprocal(fmaf(0.3535533906f, fabsf(x), 1.0f));
  float slope = fmaf(-0.09689339843f, t, 0.2647754845f);
  slope = fmaf(slope, t, 0.02815210107f);
  slope = fmaf(slope, t, 0.165314367f);
  slope = fmaf(slope, t, 0.1386568652f);
  constexpr float kHalfLog2E = 0.7213475204f;
  const float bell = t * ApproximateExp2(x * (x * -kHalfLog2E));
  const float is_positive = __saturatef(x * 0x1p126f);  // 1 or 0
  return x * fabsf(fmaf(-slope, bell, is_positive));
}

template <typename T>
__device__ __forceinline__ float Gelu(GeluForm form, float x) {
  if (form == GeluForm::kTanh) return GeluTanh(x);
  if constexpr (std::is_same_v<T, float>) {
    return x * normcdff(x);
  } else {
    return GeluErfFor16Bits(x);
  }
}

}  // namespace ridgeline::kernels::fused
