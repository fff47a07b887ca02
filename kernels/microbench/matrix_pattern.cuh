// The operands of MatrixPeakParams, whose elements alternate in sign along K.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "kernels/common/matrix_types.cuh"

namespace ridgeline::kernels::microbench {

// A word of a row whose elements are value, -value, value, ... and whose byte `begin_byte` it begins with.
template <typename T>
__device__ __forceinline__ std::uint32_t PatternWord(float value, int begin_byte) {
  constexpr int kSize = sizeof(T);
  std::uint32_t word = 0;
#pragma unroll
  for (int byte = 0; byte < 4; byte += kSize) {
    const float signed_value = (begin_byte + byte) / kSize % 2 == 0 ? value : -value;
    T element;
    if constexpr (kSize == 4) {
      element = T{signed_value};
    } else {
      element = static_cast<T>(signed_value);
    }
    std::uint32_t bits = 0;
    memcpy(&bits, &element, kSize);
    word |= bits << (8 * byte);
  }
  return word;
}

__device__ __forceinline__ float PatternValue(int row_or_column) { return static_cast<float>(1 + row_or_column % 4); }

}  // namespace ridgeline::kernels::microbench
