// How kernels walk over all elements of [rows, columns] tensors without regard to where rows begin: a thread takes one word of
// 16 bytes of each tensor. Blocks that go through memory in order, each with little of it, come nearer to what cudaMemcpy
// reaches than those with more loads in flight: a plain copy of 512 MiB ran at 4198 GB/s with one word a thread, 4069 with two,
// 4033 with four (an H200; cudaMemcpy 4170).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/rounding.h"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

inline constexpr int kElementwiseThreads = 256;

struct Elements {
  std::int64_t count;
  std::int64_t columns;  // of a row
  int shift_elems;       // where word 0 begins before element 0
  bool lie_alike;        // all full tensors begin at the same distance from a multiple of 16 bytes
};

// First element of the thread's word; may be negative.
template <typename T>
__device__ __forceinline__ std::int64_t FirstElement(const Elements& elements) {
  const std::int64_t word = std::int64_t{blockIdx.x} * kElementwiseThreads + threadIdx.x;
  return word * kVectorElems<T> - elements.shift_elems;
}

struct Place {
  std::int64_t row, column;
};

// Of an element that exists. Division in 32 bits is a quarter of one in 64.
__device__ __forceinline__ Place PlaceOf(const Elements& elements, std::int64_t element) {
  if (elements.count <= 0xffffffff) {
    const auto columns = static_cast<std::uint32_t>(elements.columns);
    const std::uint32_t row = static_cast<std::uint32_t>(element) / columns;
    return {row, static_cast<std::uint32_t>(element) - row * columns};
  }
  const std::int64_t row = element / elements.columns;
  return {row, element - row * elements.columns};
}

inline Elements ElementsOfTensor(std::int64_t rows, std::int64_t columns, std::int64_t shift_elems, bool lie_alike) {
  return {.count = rows * columns,
          .columns = columns,
          .shift_elems = lie_alike ? static_cast<int>(shift_elems) : 0,
          .lie_alike = lie_alike};
}

template <typename T>
LaunchShape ElementwiseShape(const Elements& elements) {
  const std::int64_t words = CeilDivide(elements.count + elements.shift_elems, kVectorElems<T>);
  return {dim3(static_cast<unsigned>(CeilDivide(words, kElementwiseThreads))), dim3(kElementwiseThreads)};
}

}  // namespace ridgeline::kernels::fused
