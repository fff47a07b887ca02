// Products by wgmma whose K is a row of the 128-byte swizzle, and MatrixPeakParams' A and B for them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/wgmma_types.cuh"
#include "kernels/microbench/compute_peak.h"
#include "kernels/microbench/matrix_pattern.cuh"

namespace ridgeline::kernels::microbench {

inline constexpr int kProductRowBytes = kMatrixStepBytes * kWgmmaTileSteps;
static_assert(kProductRowBytes == 128, "a row of an operand is a row of the swizzle");

// In the 128-byte swizzle chunks of 16 bytes trade places within a row; in these rows all of them are the same.
using ProductRow = std::uint32_t[kProductRowBytes / 4];

// By all threads of the block. The elements of row i are ±value_of_row(i).
template <typename T, typename ValueOfRow>
__device__ __forceinline__ void FillRows(ProductRow* rows, int num_rows, const ValueOfRow& value_of_row) {
  constexpr int kWords = kProductRowBytes / 4;
  for (int i = static_cast<int>(threadIdx.x); i < num_rows * kWords; i += static_cast<int>(blockDim.x)) {
    rows[i / kWords][i % kWords] = PatternWord<T>(value_of_row(i / kWords), 4 * (i % kWords));
  }
}

// sums += A[64,K] · B[256,K]ᵀ
template <typename T>
__device__ __forceinline__ void AddProduct(SumOf<T> (&sums)[128], WgmmaOperand a, WgmmaOperand b) {
#pragma unroll
  for (int step = 0; step < kWgmmaTileSteps; ++step) {
    Wgmma32Bytes<T>(sums, a.At(step * kMatrixStepBytes), b.At(step * kMatrixStepBytes));
  }
}

}  // namespace ridgeline::kernels::microbench
