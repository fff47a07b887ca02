// Activation functions in device code. For 16-bit types they are a few instructions long, because the kernels they are part of
// move four bytes an element and have time for about thirty.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/common/approximate_math.cuh"
#include "kernels/fused/fused.h"

namespace ridgeline::kernels::fused {

// A factor of the result, as each form takes it for nothing.
struct OutputScale {
  float factor = 1, inverse = 1, log2 = 0;
};

// x / (1 + exp(-y)).
__device__ __forceinline__ float TimesSigmoid(float x, float y, const OutputScale& scale = {}) {
  constexpr float kLog2E = 1.442695041f;
  return x * ApproximateReciprocal(fmaf(ApproximateExp2(-kLog2E * y), scale.inverse, scale.inverse));
}

// 1 + tanh(u) is 2 / (1 + exp(-2u)), which loses nothing where tanh(u) is near -1.
__device__ __forceinline__ float GeluTanh(float x, const OutputScale& scale = {}) {
  constexpr float kFactor = 1.595769122f;  // 2 * sqrt(2 / pi)
  return TimesSigmoid(x, x * fmaf(0.044715f * kFactor, x * x, kFactor), scale);
}

// x times the normal distribution function. Its tail is exp(-x^2 / 2) times a function of t = 1 / (1 + p|x|) that is nearly
// straight: a polynomial minimax in relative error (1.1e-5 up to |x| = 6, 1.1e-3 at 12), which 16-bit results don't show.
__device__ __forceinline__ float GeluErfFor16Bits(float x, const OutputScale& scale = {}) {
  const float t = ApproximateReciprocal(fmaf(0.3535533906f, fabsf(x), 1.0f));
  float tail = fmaf(-0.09689339843f, t, 0.2647754845f);
  tail = fmaf(tail, t, 0.02815210107f);
  tail = fmaf(tail, t, 0.165314367f);
  tail = fmaf(tail, t, 0.1386568652f);
  constexpr float kHalfLog2E = 0.7213475204f;
  tail *= t * ApproximateExp2(fmaf(x * x, -kHalfLog2E, scale.log2));
  return x * (x > 0 ? scale.factor - tail : tail);
}

template <typename T>
__device__ __forceinline__ float Gelu(GeluForm form, float x, const OutputScale& scale = {}) {
  if (form == GeluForm::kTanh) return GeluTanh(x, scale);
  if constexpr (std::is_same_v<T, float>) {
    return x * normcdff(x) * scale.factor;
  } else {
    return GeluErfFor16Bits(x, scale);
  }
}

}  // namespace ridgeline::kernels::fused
