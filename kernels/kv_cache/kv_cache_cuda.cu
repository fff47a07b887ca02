// A warp moves one piece at a time: up to kPieceWords words of the keys, or of the values, of one row or page. Every lane has
// its loads in flight before its first store, and pieces of a row, page or launch go to warps side by side.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/rounding.h"
#include "kernels/kv_cache/kv_cache_cuda.h"

namespace ridgeline::kernels::kv_cache {
namespace {

constexpr int kWarpThreads = 32;
constexpr int kThreads = 128;
constexpr int kBlockWarps = kThreads / kWarpThreads;
constexpr int kThreadWords = 4;
constexpr int kPieceWords = kWarpThreads * kThreadWords;
constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 20;  // warps go round: any number of pieces

// How a row, or a page, is cut: pieces of its keys first, then of its values.
struct Cut {
  std::int64_t key_words;
  std::int64_t value_words;
  std::int64_t key_pieces;
  std::int64_t pieces;
};

template <typename Word>
Cut CutIntoPieces(std::int64_t key_bytes, std::int64_t value_bytes) {
  constexpr std::int64_t kWordBytes = sizeof(Word);
  const std::int64_t key_pieces = CeilDivide(key_bytes / kWordBytes, kPieceWords);
  return {.key_words = key_bytes / kWordBytes,
          .value_words = value_bytes / kWordBytes,
          .key_pieces = key_pieces,
          .pieces = key_pieces + CeilDivide(value_bytes / kWordBytes, kPieceWords)};
}

// By one warp: the lane takes every 32nd word.
template <typename Word>
__device__ void CopyPiece(Word* to, const Word* from, std::int64_t words) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  Word held[kThreadWords];
#pragma unroll
  for (int i = 0; i < kThreadWords; ++i) {
    if (lane + i * kWarpThreads < words) held[i] = from[lane + i * kWarpThreads];
  }
#pragma unroll
  for (int i = 0; i < kThreadWords; ++i) {
    if (lane + i * kWarpThreads < words) to[lane + i * kWarpThreads] = held[i];
  }
}

// A piece of `row`, or of the page of that number, of an array of such.
template <typename Word>
__device__ void CopyPieceOf(void* to, std::int64_t to_row, const void* from, std::int64_t from_row, std::int64_t row_words,
                            std::int64_t piece_idx) {
  const std::int64_t begin = piece_idx * kPieceWords;
  CopyPiece(static_cast<Word*>(to) + to_row * row_words + begin, static_cast<const Word*>(from) + from_row * row_words + begin,
            row_words - begin);
}

// Calls body(piece_idx) for the pieces of this warp.
template <typename Body>
__device__ void ForEachPiece(std::int64_t num_pieces, const Body& body) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kBlockWarps + threadIdx.x / kWarpThreads;
  for (std::int64_t piece_idx = first; piece_idx < num_pieces; piece_idx += std::int64_t{gridDim.x} * kBlockWarps) {
    body(piece_idx);
  }
}

unsigned BlocksFor(std::int64_t num_pieces) {
  return static_cast<unsigned>(std::min(CeilDivide(num_pieces, kBlockWarps), kMaxBlocks));
}

// The row of the pages that holds the token of this dense row; -1 if it belongs to none.
__device__ std::int64_t FindPagedRow(const PagedRows& rows, std::int64_t row) {
  // The first span that ends after the row.
  std::int64_t begin = 0;
  for (std::int64_t end = rows.num_spans; begin < end;) {
    const std::int64_t middle = (begin + end) / 2;
    if (rows.spans[middle].row_begin + rows.spans[middle].num_tokens > row) {
      end = middle;
    } else {
      begin = middle + 1;
    }
  }
  if (begin == rows.num_spans || rows.spans[begin].row_begin > row) return -1;
  const TokenSpan& span = rows.spans[begin];
  const std::int64_t token = span.token_begin + (row - span.row_begin);
  const std::int64_t page = rows.block_table[span.table_begin + token / rows.pages.page_tokens];
  return page * rows.pages.page_tokens + token % rows.pages.page_tokens;
}

template <typename Word>
__global__ void __launch_bounds__(kThreads)
    AppendKernel(const __grid_constant__ AppendParams params, const __grid_constant__ Cut cut) {
  ForEachPiece(params.to.num_rows * cut.pieces, [&](std::int64_t piece_idx) {
    const std::int64_t row = piece_idx / cut.pieces;
    const std::int64_t piece = piece_idx % cut.pieces;
    const std::int64_t paged_row = FindPagedRow(params.to, row);
    if (paged_row < 0) return;
    if (piece < cut.key_pieces) {
      CopyPieceOf<Word>(params.to.pages.key, paged_row, params.key, row, cut.key_words, piece);
    } else {
      CopyPieceOf<Word>(params.to.pages.value, paged_row, params.value, row, cut.value_words, piece - cut.key_pieces);
    }
  });
}

template <typename Word>
__global__ void __launch_bounds__(kThreads)
    GatherKernel(const __grid_constant__ GatherParams params, const __grid_constant__ Cut cut) {
  ForEachPiece(params.from.num_rows * cut.pieces, [&](std::int64_t piece_idx) {
    const std::int64_t row = piece_idx / cut.pieces;
    const std::int64_t piece = piece_idx % cut.pieces;
    const std::int64_t paged_row = FindPagedRow(params.from, row);
    if (paged_row < 0) return;
    if (piece < cut.key_pieces) {
      CopyPieceOf<Word>(params.key, row, params.from.pages.key, paged_row, cut.key_words, piece);
    } else {
      CopyPieceOf<Word>(params.value, row, params.from.pages.value, paged_row, cut.value_words, piece - cut.key_pieces);
    }
  });
}

template <typename Word>
__global__ void __launch_bounds__(kThreads)
    CopyPagesKernel(const __grid_constant__ CopyPagesParams params, const __grid_constant__ Cut cut) {
  ForEachPiece(params.num_layers * params.num_copies * cut.pieces, [&](std::int64_t piece_idx) {
    const std::int64_t piece = piece_idx % cut.pieces;
    const std::int64_t page_idx = piece_idx / cut.pieces;
    const std::int64_t layer = page_idx / params.num_copies;
    const PageCopy copy = params.copies[page_idx % params.num_copies];
    if (piece < cut.key_pieces) {
      char* const plane = static_cast<char*>(params.key) + layer * params.key_layer_stride_bytes;
      CopyPieceOf<Word>(plane, copy.destination, plane, copy.source, cut.key_words, piece);
    } else {
      char* const plane = static_cast<char*>(params.value) + layer * params.value_layer_stride_bytes;
      CopyPieceOf<Word>(plane, copy.destination, plane, copy.source, cut.value_words, piece - cut.key_pieces);
    }
  });
}

// Whether rows, and so their addresses, are whole words of 16 bytes. One KV head of 8-bit elements may have 8 or 24.
bool HasWideRows(std::int64_t key_bytes, std::int64_t value_bytes) {
  return key_bytes % sizeof(uint4) == 0 && value_bytes % sizeof(uint4) == 0;
}

template <typename Word>
cudaError_t AppendInWords(const AppendParams& params, cudaStream_t stream) {
  const Cut cut = CutIntoPieces<Word>(params.to.pages.KeyRowBytes(), params.to.pages.ValueRowBytes());
  return Launch(AppendKernel<Word>, {dim3(BlocksFor(params.to.num_rows * cut.pieces)), dim3(kThreads)}, stream, params, cut);
}

template <typename Word>
cudaError_t GatherInWords(const GatherParams& params, cudaStream_t stream) {
  const Cut cut = CutIntoPieces<Word>(params.from.pages.KeyRowBytes(), params.from.pages.ValueRowBytes());
  return Launch(GatherKernel<Word>, {dim3(BlocksFor(params.from.num_rows * cut.pieces)), dim3(kThreads)}, stream, params, cut);
}

template <typename Word>
cudaError_t CopyPagesInWords(const CopyPagesParams& params, cudaStream_t stream) {
  const Cut cut = CutIntoPieces<Word>(params.key_page_bytes, params.value_page_bytes);
  const std::int64_t num_pieces = params.num_layers * params.num_copies * cut.pieces;
  return Launch(CopyPagesKernel<Word>, {dim3(BlocksFor(num_pieces)), dim3(kThreads)}, stream, params, cut);
}

}  // namespace

cudaError_t LaunchAppend(const AppendParams& params, cudaStream_t stream) {
  const Pages& pages = params.to.pages;
  return HasWideRows(pages.KeyRowBytes(), pages.ValueRowBytes()) ? AppendInWords<uint4>(params, stream)
                                                                 : AppendInWords<uint2>(params, stream);
}

cudaError_t LaunchGather(const GatherParams& params, cudaStream_t stream) {
  const Pages& pages = params.from.pages;
  return HasWideRows(pages.KeyRowBytes(), pages.ValueRowBytes()) ? GatherInWords<uint4>(params, stream)
                                                                 : GatherInWords<uint2>(params, stream);
}

cudaError_t LaunchCopyPages(const CopyPagesParams& params, cudaStream_t stream) {
  return HasWideRows(params.key_page_bytes, params.value_page_bytes) ? CopyPagesInWords<uint4>(params, stream)
                                                                     : CopyPagesInWords<uint2>(params, stream);
}

}  // namespace ridgeline::kernels::kv_cache
