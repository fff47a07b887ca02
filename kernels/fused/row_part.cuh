// What one thread has of its row, and how it reaches it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cluster.cuh"
#include "kernels/fused/dropout.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/row_schedule.h"
#include "kernels/fused/row_statistics.cuh"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

struct RowArguments {
  const void* input;      // [R, N]
  const void* other;      // [R, N] or null
  const void* weight;     // [N] or null
  const void* bias;       // [N] or null
  void* output;           // [R, N]
  void* residual_output;  // [R, N], null if other is
  std::uint8_t* mask;     // [R, N] or null
  std::int64_t num_rows;
  int row_elems;
  int shift_elems;      // of the first row, if rows lie alike; words only
  bool rows_lie_alike;  // input, other and outputs begin at the same distance from a multiple of 16 bytes
  float epsilon;
  DropoutRule dropout;
  int cluster_blocks;
  int chunks;
};

// kElements: anything. kWords: every row, weight and bias begins at a multiple of 16 bytes and is whole words, and goes in one
// chunk. kBlock: and a block of at most kMostBlockRowThreads has one row, in whole warps. kStaged: or it has one row after the
// other, and the copy engine brings the next one's input to shared memory meanwhile. kFull..: and no thread lacks any of its
// words, and there is no mask, so that nobody asks, and instructions for one word may run among those for the next.
enum class RowAccess { kElements, kWords, kBlock, kFullBlock, kStaged, kFullStaged };

inline constexpr int kMostBlockRowThreads = 512;

template <RowAccess kAccess>
inline constexpr bool kIsBlock = kAccess == RowAccess::kBlock || kAccess == RowAccess::kFullBlock;
template <RowAccess kAccess>
inline constexpr bool kIsStaged = kAccess == RowAccess::kStaged || kAccess == RowAccess::kFullStaged;
template <RowAccess kAccess>
inline constexpr bool kIsFull = kAccess == RowAccess::kFullBlock || kAccess == RowAccess::kFullStaged;
// Rows of whole warps, a row a block or cluster.
template <RowAccess kAccess>
inline constexpr bool kHasWholeWarps = kIsBlock<kAccess> || kIsStaged<kAccess>;

template <RowAccess kAccess>
__device__ __forceinline__ int ClusterBlocks(const RowArguments& arguments) {
  return kIsBlock<kAccess> || kAccess == RowAccess::kWords ? 1 : arguments.cluster_blocks;
}

template <RowAccess kAccess>
__device__ __forceinline__ bool HasMask(const RowArguments& arguments) {
  return !kIsFull<kAccess> && arguments.mask != nullptr;
}

template <typename T>
inline constexpr int kHeldWords = kThreadElems / kVectorElems<T>;

// A thread's words of one chunk.
template <typename T>
using Held = Vector<T>[kHeldWords<T>];

template <typename T, RowAccess kAccess>
struct RowPart {
  std::int64_t row_begin;  // element of the arrays
  Bounds<int> bounds;      // columns of the row; empty if there is no row
  int warp_begin;          // column of the warp's first word (the team's, where it is narrower) in chunk 0; may be negative
  int first_column;        // of the thread's

  // Lanes of the warp that share a row.
  static __device__ __forceinline__ int lanes() {
    return kHasWholeWarps<kAccess> ? kWarpThreads : min(static_cast<int>(blockDim.x), kWarpThreads);
  }

  __device__ __forceinline__ RowPart(const RowArguments& arguments, std::int64_t row) {
    const bool exists = kHasWholeWarps<kAccess> || row < arguments.num_rows;
    row_begin = exists ? row * arguments.row_elems : 0;
    bounds = {exists ? arguments.row_elems : 0};
    int shift = 0;
    if constexpr (kAccess == RowAccess::kElements) {
      if (arguments.rows_lie_alike) shift = static_cast<int>((row_begin + arguments.shift_elems) % kVectorElems<T>);
    }
    const unsigned thread = threadIdx.x;
    const int block_begin =
        ClusterBlocks<kAccess>(arguments) > 1 ? ClusterRank() * static_cast<int>(blockDim.x) * kThreadElems : 0;
    warp_begin = block_begin + static_cast<int>(thread / kWarpThreads * (kWarpThreads * kThreadElems)) - shift;
    first_column = warp_begin + static_cast<int>(thread % kWarpThreads * kVectorElems<T>);
  }

  static __device__ __forceinline__ int WordStride() { return lanes() * kVectorElems<T>; }
  static __device__ __forceinline__ int ChunkBegin(const RowArguments& arguments, int chunk) {
    if constexpr (kAccess != RowAccess::kElements) return 0;
    return chunk * arguments.cluster_blocks * static_cast<int>(blockDim.x) * kThreadElems;
  }
  __device__ __forceinline__ int Column(const RowArguments& arguments, int chunk, int word) const {
    return first_column + ChunkBegin(arguments, chunk) + word * WordStride();
  }
  __device__ __forceinline__ bool HasAny(int column) const { return kIsFull<kAccess> || column < bounds.end; }

  // Elements that the warp, or the team, has in a chunk.
  __device__ __forceinline__ int WarpElems(const RowArguments& arguments, int chunk) const {
    const int begin = warp_begin + ChunkBegin(arguments, chunk);
    return max(min(begin + lanes() * kThreadElems, bounds.end) - max(begin, 0), 0);
  }

  // The words of a chunk of one array.
  __device__ __forceinline__ void LoadHeld(const RowArguments& arguments, const void* array, int chunk, float outside,
                                           Held<T>& held) const {
    const T* const row = static_cast<const T*>(array) + row_begin;
    const T* const first_word = row + first_column;
#pragma unroll
    for (int v = 0; v < kHeldWords<T>; ++v) {
      const int column = Column(arguments, chunk, v);
      if (!HasAny(column)) {
        held[v] = Vector<T>::Filled(outside);
      } else if constexpr (kAccess == RowAccess::kElements) {
        held[v] = Load(row, column, bounds, arguments.rows_lie_alike, outside);
      } else {
        held[v] = LoadWord<T, Reuse::kNever>(first_word + v * WordStride());
      }
    }
  }
  __device__ __forceinline__ void StoreWord(const RowArguments& arguments, void* array, int chunk, int word,
                                            const float (&x)[kVectorElems<T>]) const {
    T* const row = static_cast<T*>(array) + row_begin;
    if constexpr (kAccess == RowAccess::kElements) {
      Store(row, Column(arguments, chunk, word), bounds, arguments.rows_lie_alike, x);
    } else {
      __stcs(reinterpret_cast<uint4*>(row + first_column + word * WordStride()), Vector<T>::Pack(x).bits);
    }
  }

  // Calls body(word, x) for the words of a chunk that have any element of the row.
  template <typename Body>
  __device__ __forceinline__ void ForEachWord(const RowArguments& arguments, int chunk, const Held<T>& held,
                                              const Body& body) const {
#pragma unroll
    for (int v = 0; v < kHeldWords<T>; ++v) {
      const int column = Column(arguments, chunk, v);
      if (!HasAny(column)) continue;
      float x[kVectorElems<T>];
      held[v].Unpack(x);
      body(v, x);
    }
  }
};

// Adds the residual to the elements of one chunk, and writes the sums when they are first made.
template <typename T, RowAccess kAccess>
__device__ __forceinline__ void AddResidual(const RowArguments& arguments, const RowPart<T, kAccess>& part, int chunk,
                                            bool is_first_time, const Held<T>& addends, Held<T>& held) {
#pragma unroll
  for (int v = 0; v < kHeldWords<T>; ++v) {
    if (!part.HasAny(part.Column(arguments, chunk, v))) continue;
    float x[kVectorElems<T>], o[kVectorElems<T>];
    held[v].Unpack(x);
    addends[v].Unpack(o);
#pragma unroll
    for (int i = 0; i < kVectorElems<T>; ++i) x[i] += o[i];
    held[v] = Vector<T>::Pack(x);
    if (is_first_time) part.StoreWord(arguments, arguments.residual_output, chunk, v, x);
  }
}

template <RowAccess kAccess>
__device__ __forceinline__ int NumChunks(const RowArguments& arguments) {
  return kAccess == RowAccess::kElements ? arguments.chunks : 1;
}

// Takes the elements of one chunk, with the residual if there is one. Elements outside of the row are `outside`.
template <bool kHasOther, typename T, RowAccess kAccess>
__device__ __forceinline__ void LoadChunk(const RowArguments& arguments, const RowPart<T, kAccess>& part, int chunk,
                                          bool is_first_time, float outside, Held<T>& held) {
  part.LoadHeld(arguments, arguments.input, chunk, outside, held);
  if constexpr (kHasOther) {
    Held<T> addends;
    part.LoadHeld(arguments, arguments.other, chunk, 0, addends);
    AddResidual(arguments, part, chunk, is_first_time, addends, held);
  }
}

}  // namespace ridgeline::kernels::fused
