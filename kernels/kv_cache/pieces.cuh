// How kernels move rows, or pages, of keys and values: a warp moves one piece at a time, up to kPieceWords words of the keys,
// or of the values, of one row. Every lane has its loads in flight before its first store, and pieces go to warps side by side.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/common/rounding.h"

namespace ridgeline::kernels::kv_cache {

inline constexpr int kWarpThreads = 32;
inline constexpr int kPieceThreads = 128;  // of a block
inline constexpr int kBlockWarps = kPieceThreads / kWarpThreads;
inline constexpr int kLaneWords = 4;
inline constexpr int kPieceWords = kWarpThreads * kLaneWords;

// How a row is cut: pieces of its keys first, then of its values.
struct Cut {
  std::int64_t key_words;
  std::int64_t value_words;
  std::int64_t key_pieces;
  std::int64_t pieces;
};

template <typename Word>
Cut CutIntoPieces(std::int64_t key_row_bytes, std::int64_t value_row_bytes) {
  constexpr std::int64_t kWordBytes = sizeof(Word);
  const std::int64_t key_words = key_row_bytes / kWordBytes;
  const std::int64_t value_words = value_row_bytes / kWordBytes;
  const std::int64_t key_pieces = CeilDivide(key_words, kPieceWords);
  return {.key_words = key_words,
          .value_words = value_words,
          .key_pieces = key_pieces,
          .pieces = key_pieces + CeilDivide(value_words, kPieceWords)};
}

// A row of two arrays.
struct RowFrom {
  const void* key;
  const void* value;
  std::int64_t row;
};

struct RowTo {
  void* key;
  void* value;
  std::int64_t row;
};

// By one warp: a lane takes every 32nd word.
template <typename Word>
__device__ void CopyWords(Word* to, const Word* from, std::int64_t words) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  Word held[kLaneWords];
#pragma unroll
  for (int i = 0; i < kLaneWords; ++i) {
    if (lane + i * kWarpThreads < words) held[i] = from[lane + i * kWarpThreads];
  }
#pragma unroll
  for (int i = 0; i < kLaneWords; ++i) {
    if (lane + i * kWarpThreads < words) to[lane + i * kWarpThreads] = held[i];
  }
}

template <typename Word>
__device__ void CopyPiece(const Cut& cut, std::int64_t piece_idx, const RowTo& to, const RowFrom& from) {
  const bool is_key = piece_idx < cut.key_pieces;
  const std::int64_t row_words = is_key ? cut.key_words : cut.value_words;
  const std::int64_t begin = (is_key ? piece_idx : piece_idx - cut.key_pieces) * kPieceWords;
  CopyWords(static_cast<Word*>(is_key ? to.key : to.value) + to.row * row_words + begin,
            static_cast<const Word*>(is_key ? from.key : from.value) + from.row * row_words + begin, row_words - begin);
}

// Calls body(row_idx, piece_idx of the row) for the pieces of this warp.
template <typename Body>
__device__ void ForEachPiece(std::int64_t num_rows, const Cut& cut, const Body& body) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kBlockWarps + threadIdx.x / kWarpThreads;
  const std::int64_t step = std::int64_t{gridDim.x} * kBlockWarps;
  for (std::int64_t i = first; i < num_rows * cut.pieces; i += step) body(i / cut.pieces, i % cut.pieces);
}

// Blocks for ForEachPiece. Warps go round, so there may be any number of pieces.
inline dim3 BlocksFor(std::int64_t num_rows, const Cut& cut) {
  constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 20;
  return dim3(static_cast<unsigned>(std::min(CeilDivide(num_rows * cut.pieces, kBlockWarps), kMaxBlocks)));
}

}  // namespace ridgeline::kernels::kv_cache
