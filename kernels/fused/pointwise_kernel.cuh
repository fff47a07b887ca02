// Operations that take their elements one by one, fused.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fused/activations.cuh"
#include "kernels/fused/elementwise_kernel.cuh"
#include "kernels/fused/fused.h"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

enum class Pointwise { kGeluErf, kGeluTanh, kSwiglu };

struct PointwiseArguments {
  Elements elements;
  const void* input;
  const void* other;   // null: none
  const void* bias;    // [columns]; null: none
  bool bias_is_words;  // and so is every row
  void* output;
};

// Bias of the elements of a word; it may reach into following rows, or begin before the first.
template <typename T>
__device__ __forceinline__ void LoadBias(const PointwiseArguments& arguments, std::int64_t element,
                                         float (&bias)[kVectorElems<T>]) {
  const T* const from = static_cast<const T*>(arguments.bias);
  const Elements& elements = arguments.elements;
  std::int64_t column = PlaceOf(elements, element < 0 ? 0 : element).column;
  if (arguments.bias_is_words) return LoadWord<T, Reuse::kSoon>(from + column).Unpack(bias);
#pragma unroll
  for (int i = 0; i < kVectorElems<T>; ++i) {
    bias[i] = ToFloat(from[column]);
    if (element + i >= 0 && ++column == elements.columns) column = 0;
  }
}

template <typename T, Pointwise kFunction, bool kHasOther>
__device__ __forceinline__ float Apply(float x, float other) {
  if constexpr (kFunction == Pointwise::kSwiglu) return TimesSigmoid(x, x) * other;
  const float y = Gelu<T>(kFunction == Pointwise::kGeluErf ? GeluForm::kErf : GeluForm::kTanh, x);
  return kHasOther ? y + other : y;
}

template <typename T, Pointwise kFunction>
__global__ void __launch_bounds__(kElementwiseThreads) PointwiseKernel(const __grid_constant__ PointwiseArguments arguments) {
  constexpr int kElems = kVectorElems<T>;
  const Bounds<std::int64_t> bounds = {arguments.elements.count};
  const bool aligned = arguments.elements.lie_alike;
  const std::int64_t element = FirstElement<T>(arguments.elements);
  if (element >= bounds.end) return;
  float x[kElems], other[kElems] = {};
  const Vector<T> word = Load(static_cast<const T*>(arguments.input), element, bounds, aligned);
  if (arguments.other != nullptr) Load(static_cast<const T*>(arguments.other), element, bounds, aligned).Unpack(other);
  word.Unpack(x);
  if (arguments.bias != nullptr) {
    float bias[kElems];
    LoadBias<T>(arguments, element, bias);
#pragma unroll
    for (int i = 0; i < kElems; ++i) x[i] += bias[i];
  }
#pragma unroll
  for (int i = 0; i < kElems; ++i) x[i] = Apply<T, kFunction, /*kHasOther=*/true>(x[i], other[i]);
  Store(static_cast<T*>(arguments.output), element, bounds, aligned, x);
}

}  // namespace ridgeline::kernels::fused
