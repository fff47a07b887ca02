// What becomes of a word of a row whose norm is known.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fused/activations.cuh"
#include "kernels/fused/dropout.h"
#include "kernels/fused/dropout_mask.cuh"
#include "kernels/fused/fused.h"
#include "kernels/fused/row_part.cuh"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

// What a norm does with an element: (x * scale - mean) * factor * weight + bias; if it is plain, x * factor + shift takes the
// place of the first three.
struct Normalization {
  float scale, mean, factor, shift;
};

template <bool kIsPlain, typename T>
__device__ __forceinline__ void Normalize(const Normalization& by, const Vector<T>& weights, const Vector<T>& biases,
                                          float (&x)[kVectorElems<T>]) {
  float weight[kVectorElems<T>], bias[kVectorElems<T>];
  weights.Unpack(weight);
  biases.Unpack(bias);
#pragma unroll
  for (int i = 0; i < kVectorElems<T>; ++i) {
    const float normal = kIsPlain ? fmaf(x[i], by.factor, by.shift) : fmaf(x[i], by.scale, -by.mean) * by.factor;
    x[i] = fmaf(normal, weight[i], bias[i]);
  }
}
template <bool kIsPlain, typename T>
__device__ __forceinline__ void Normalize(const Normalization& by, const Vector<T>& weights, float (&x)[kVectorElems<T>]) {
  float weight[kVectorElems<T>];
  weights.Unpack(weight);
#pragma unroll
  for (int i = 0; i < kVectorElems<T>; ++i) x[i] = (kIsPlain ? x[i] : x[i] * by.scale) * by.factor * weight[i];
}

template <GeluForm kForm, typename T, RowAccess kAccess>
__device__ __forceinline__ void GeluDropout(const RowArguments& arguments, const RowPart<T, kAccess>& part, int column,
                                            const std::uint32_t (&bits)[kVectorElems<T> / 2], float (&x)[kVectorElems<T>]) {
  constexpr int kElems = kVectorElems<T>;
  const DropoutRule& rule = arguments.dropout;
#pragma unroll
  for (float& element : x) element = Gelu<T>(kForm, element);
  std::uint32_t kept = 0;
  if constexpr (kAccess == RowAccess::kElements) {
    kept = KeptAnywhere<T>(rule, part.row_begin + column);
#pragma unroll
    for (int i = 0; i < kElems; ++i) x[i] = (kept >> i) & 1 ? x[i] * rule.scale : 0.0f;
  } else {
    DropElements<kElems>(rule, bits, x);
    if (HasMask<kAccess>(arguments)) kept = KeptOfBits(rule, bits);
  }
  if (HasMask<kAccess>(arguments)) StoreMask<T>(arguments.mask + part.row_begin, column, part.bounds, kept);
}

}  // namespace ridgeline::kernels::fused
