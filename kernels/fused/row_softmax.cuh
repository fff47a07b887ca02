// What a thread has of a softmax: the maximum of its elements, and their exponentials, each made once.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <type_traits>

#include "kernels/common/approximate_math.cuh"
#include "kernels/common/float16.cuh"
#include "kernels/fused/row_part.cuh"
#include "kernels/fused/row_statistics.cuh"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

// exp(element - shift) as exp2(element * factor - subtrahend): one instruction less for each. Rounding of the subtrahend is a
// factor that all share. Elements beside a shift of 2^100 and more are equal to it or 2^76 away, so any factor will do that
// overflows nothing.
struct ShiftedExp {
  float factor, subtrahend;

  __device__ __forceinline__ explicit ShiftedExp(float shift)
      : factor(fabsf(shift) < 0x1p100f ? MaxSum::kLog2E : 0x1p-30f), subtrahend(shift * factor) {}
  __device__ __forceinline__ float Of(float element) const { return ApproximateExp2(fmaf(element, factor, -subtrahend)); }
};

template <typename T>
__device__ __forceinline__ float MaxOfHeld(const Held<T>& held) {
  if constexpr (sizeof(T) == 2) {
    using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    Pair most = AsPair<Pair>(held[0].bits.x);
#pragma unroll
    for (const Vector<T>& word : held) {
      const Pair low = __hmax2(AsPair<Pair>(word.bits.x), AsPair<Pair>(word.bits.y));
      most = __hmax2(most, __hmax2(low, __hmax2(AsPair<Pair>(word.bits.z), AsPair<Pair>(word.bits.w))));
    }
    return fmaxf(ToFloat(most.x), ToFloat(most.y));
  } else {
    float most = -INFINITY;
#pragma unroll
    for (const Vector<T>& word : held) {
      float x[kVectorElems<T>];
      word.Unpack(x);
#pragma unroll
      for (const float element : x) most = fmaxf(most, element);
    }
    return most;
  }
}

// The thread's own part of a softmax, and exp(element - its maximum).
template <typename T>
__device__ __forceinline__ MaxSum Exponentials(const Held<T>& held, float (&exponentials)[kThreadElems]) {
  constexpr int kElems = kVectorElems<T>;
  MaxSum own = {{MaxOfHeld<T>(held), 0}};
  const ShiftedExp shifted(own.shift());
#pragma unroll
  for (int v = 0; v < kHeldWords<T>; ++v) {
    float x[kElems];
    held[v].Unpack(x);
#pragma unroll
    for (int i = 0; i < kElems; ++i) {
      exponentials[v * kElems + i] = shifted.Of(x[i]);
      own.fields[1] += exponentials[v * kElems + i];
    }
  }
  return own;
}

}  // namespace ridgeline::kernels::fused
