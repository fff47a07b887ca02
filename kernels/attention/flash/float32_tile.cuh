// Tiles of floats in shared memory, for products on the CUDA cores.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cp_async.cuh"
#include "kernels/common/shared_memory.cuh"

namespace ridgeline::kernels::attention {

// Rows are 16 bytes longer than their elements, so that a column of them lies in different banks. kThreads threads copy a tile.
template <int kRows, int kColumns, int kThreads>
struct Float32Tile {
  static constexpr int kPitch = kColumns + 4;
  static constexpr int kChunkElems = 4;
  static constexpr int kChunks = kColumns / kChunkElems;
  static_assert(kRows * kChunks % kThreads == 0, "every thread copies as many chunks as the others");

  alignas(16) float elements[kRows][kPitch];

  // Queues this thread's part of the copy. `source_of_row(row)` is where a row begins; what lies beyond num_rows or `columns`
  // (a multiple of 4) is not read and becomes zero.
  template <typename SourceOfRow>
  __device__ void CopyFrom(int num_rows, int columns, SourceOfRow source_of_row) {
#pragma unroll 4
    for (int idx = static_cast<int>(threadIdx.x); idx < kRows * kChunks; idx += kThreads) {
      const int row = idx / kChunks, column = idx % kChunks * kChunkElems;
      const bool valid = row < num_rows && column < columns;
      CpAsync16(SharedAddress(&elements[row][column]), valid ? source_of_row(row) + column : nullptr, valid);
    }
  }

  // Whether there is an Inf or a NaN in what this thread copied; its copies have arrived.
  __device__ bool CopiedNonFinite() const {
    bool found = false;
#pragma unroll 4
    for (int idx = static_cast<int>(threadIdx.x); idx < kRows * kChunks; idx += kThreads) {
      const float4 chunk = Load4(idx / kChunks, idx % kChunks * kChunkElems);
      // Zero unless an element is Inf or NaN: a product with zero keeps nothing else.
      const float sum = chunk.x * 0 + chunk.y * 0 + chunk.z * 0 + chunk.w * 0;
      found |= sum != 0;
    }
    return found;
  }

  // Four neighbours of a row; `column` is a multiple of 4.
  __device__ __forceinline__ float4 Load4(int row, int column) const {
    return *reinterpret_cast<const float4*>(&elements[row][column]);
  }
};

}  // namespace ridgeline::kernels::attention
