// Tiles of 16-bit elements in shared memory, as cp.async writes and ldmatrix reads them without bank conflicts.
//
//   row r: chunks of 16 bytes; chunk c lies at place c ^ (r % 8), so that the eight rows that one phase of ldmatrix or of a
//   copy touches are in different banks. A row's pitch is a power of two; chunks beyond the tile's columns are never touched.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cp_async.cuh"
#include "kernels/common/float16.cuh"
#include "kernels/common/shared_memory.cuh"

namespace ridgeline::kernels::attention {

constexpr int PitchBytes(int columns) {
  int pitch = 128;
  while (pitch < columns * 2) pitch *= 2;
  return pitch;
}

// kColumns elements a row, a multiple of 16; kThreads threads copy it together.
template <typename T, int kRows, int kColumns, int kThreads>
class MmaTile {
 public:
  static constexpr int kPitchBytes = PitchBytes(kColumns);
  static constexpr int kBytes = kRows * kPitchBytes;
  static constexpr int kChunkElems = 8;
  static constexpr int kChunks = kColumns / kChunkElems;
  static_assert(kColumns % 16 == 0, "mma consumes columns in groups of 16");

  __device__ explicit MmaTile(std::uint32_t address) : address_(address) {}

  // Shared address of a chunk.
  __device__ std::uint32_t ChunkAddress(int row, int chunk) const {
    return address_ + static_cast<std::uint32_t>(row * kPitchBytes + ((chunk ^ (row & 7)) << 4));
  }

  // ChunkAddress(row, chunk + 2 * step) for an even chunk or the odd one after it, from that of step 0. Rows further on by
  // multiples of 8 are at multiples of the pitch.
  __device__ static std::uint32_t AtStep(std::uint32_t step_0_address, int step) {
    return step_0_address ^ static_cast<std::uint32_t>(step << 5);
  }

  // This thread's first chunk of rows that begin at `source` and lie `row_stride` elements apart.
  __device__ static const T* ThreadSource(const T* source, std::int64_t row_stride) {
    return source + RowOf(0) * row_stride + Chunk() * kChunkElems;
  }

  // Queues this thread's part of the copy of rows [0, num_rows). What lies beyond num_rows or `columns` (a multiple of 8) is
  // not read and becomes zero. `source_of_pass(i)`: where this thread's chunk of row RowOf(i) lies.
  template <typename SourceOfPass>
  __device__ __forceinline__ void CopyPasses(int num_rows, int columns, SourceOfPass source_of_pass) const {
    const bool column_exists = Chunk() * kChunkElems < columns;
    if (Chunk() >= kChunks) return;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      CpAsync16(PassAddress(i), source_of_pass(i), column_exists && (num_rows == kRows || RowOf(i) < num_rows));
    }
  }

  // The same of rows that lie one after the other, from this thread's ThreadSource on; `pass_stride`: from pass to pass, in
  // elements.
  __device__ __forceinline__ void CopyFrom(const T* thread_source, std::int64_t pass_stride, int num_rows, int columns) const {
    CopyPasses(num_rows, columns, [&](int) {
      const T* const source = thread_source;
      thread_source += pass_stride;
      return source;
    });
  }

  // The same of rows that lie anywhere: `source_of_row(row)` is where one begins.
  template <typename SourceOfRow>
  __device__ __forceinline__ void CopyFrom(int num_rows, int columns, SourceOfRow source_of_row) const {
    CopyPasses(num_rows, columns,
               [&](int pass) { return RowOf(pass) < num_rows ? source_of_row(RowOf(pass)) + Chunk() * kChunkElems : nullptr; });
  }

  // Whether there is an Inf or a NaN in what this thread copied; its copies have arrived.
  __device__ __forceinline__ bool CopiedNonFinite() const {
    std::uint32_t noted = 0;
    if (Chunk() >= kChunks) return false;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const uint4 chunk = LoadShared16(PassAddress(i));
      for (const std::uint32_t pair : {chunk.x, chunk.y, chunk.z, chunk.w}) NoteNonFinite<T>(noted, pair);
    }
    return HasNonFinite<T>(noted);
  }

  // Makes every Inf and NaN that this thread copied a zero.
  __device__ __forceinline__ void ClearNonFinite() const {
    if (Chunk() >= kChunks) return;
#pragma unroll 1
    for (int i = 0; i < kPasses; ++i) {
      uint4 chunk = LoadShared16(PassAddress(i));
      chunk.x &= ~NonFiniteMask<T>(chunk.x);
      chunk.y &= ~NonFiniteMask<T>(chunk.y);
      chunk.z &= ~NonFiniteMask<T>(chunk.z);
      chunk.w &= ~NonFiniteMask<T>(chunk.w);
      StoreShared16(PassAddress(i), chunk);
    }
  }

  // The pair of elements (row, column) and (row, column + 1); column is even.
  __device__ std::uint32_t LoadPair(int row, int column) const {
    return LoadShared4(ChunkAddress(row, column / kChunkElems) + static_cast<std::uint32_t>(column % kChunkElems * 2));
  }

 private:
  static constexpr int kPitchChunks = kPitchBytes / 16;

 public:
  // Threads copy in passes of whole rows, as wide as the pitch: each thread has one chunk of every kPassRows-th row.
  static constexpr int kPassRows = kThreads / kPitchChunks;
  static constexpr int kPasses = kRows / kPassRows;
  static_assert(kThreads % kPitchChunks == 0 && kRows % kPassRows == 0, "a pass copies whole rows, all passes all rows");
  __device__ static int RowOf(int pass) { return static_cast<int>(threadIdx.x) / kPitchChunks + pass * kPassRows; }

 private:
  __device__ static int Chunk() { return static_cast<int>(threadIdx.x) % kPitchChunks; }

  // ChunkAddress(RowOf(pass), Chunk()), as one address for all passes and constants.
  __device__ std::uint32_t PassAddress(int pass) const {
    const std::uint32_t first = ChunkAddress(RowOf(0), Chunk());
    return (first ^ static_cast<std::uint32_t>((pass * kPassRows & 7) << 4)) +
           static_cast<std::uint32_t>(pass * kPassRows * kPitchBytes);
  }

  std::uint32_t address_;
};

}  // namespace ridgeline::kernels::attention
