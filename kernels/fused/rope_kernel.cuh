// Rotary embedding, fused with the append to a paged KV cache: a block takes a few tokens, works out their sines and cosines
// once, and turns all their heads by them.
//
//   gmem queries ──16-byte words──► registers ─────────────────┐
//   position ─► angles of rotary_dim / 2 pairs ─► shared memory ─┴─ turned ─► gmem queries; then keys ─► pages of keys
//   gmem values ───────────────────────────────────────────────► pages of values
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/fast_division.h"
#include "kernels/fused/rope_piece.cuh"
#include "kernels/fused/rope_sines.cuh"
#include "kernels/fused/token_position.cuh"
#include "kernels/fused/vectors.cuh"
#include "kernels/kv_cache/find_token.cuh"
#include "kernels/kv_cache/kv_cache.h"

namespace ridgeline::kernels::fused {

inline constexpr int kRopeThreads = 128;
inline constexpr int kRopeBlocks = 12;  // at least, of an SM

struct RopeArguments {
  AngleArguments angles;
  HeadPieces pieces;
  const void* query;                        // [R, query_elems] or null
  void* turned_query;                       // [R, query_elems]
  kv_cache::AppendParams append;            // keys null: none
  int query_elems, key_elems, value_elems;  // of a token; 0 where there are none
  int query_pieces, key_pieces;
  int token_threads_log2;  // that a token has of a block's
  int token_units;         // TokenSines::Units
  FastDivision slices;     // blocks that share a token
};

// The heads of one row of queries or keys. A thread has piece `first` and every step-th after it.
template <typename Piece, typename T>
class HeadRow {
 public:
  __device__ __forceinline__ HeadRow(const HeadPieces& pieces, const T* from, T* to, int num_pieces, int first, int step)
      : pieces_(pieces), from_(from), to_(to), num_pieces_(num_pieces), step_(step), piece_(first) {}

  // Reads the thread's next piece.
  __device__ __forceinline__ void Load() { ahead_.Load(pieces_, from_, piece_, num_pieces_); }

  // Turns what is loaded, and then what is left.
  __device__ __forceinline__ void TurnAll(const TokenSines& sines) {
    while (true) {
      ahead_.Store(pieces_, sines, to_);
      piece_ += step_;
      if (piece_ >= num_pieces_) return;
      Load();
    }
  }

 private:
  const HeadPieces& pieces_;
  const T* const from_;
  T* const to_;
  const int num_pieces_;
  const int step_;
  int piece_;
  Piece ahead_;
};

template <typename T, RopeLayout kLayout, bool kWords>
__global__ void __launch_bounds__(kRopeThreads, kRopeBlocks) RopeKernel(const __grid_constant__ RopeArguments arguments) {
  using Piece = RopePiece<T, kLayout, kWords>;
  extern __shared__ float4 smem_sines[];  // [tokens of a block, token_units]
  const int threads_log2 = arguments.token_threads_log2, token_threads = 1 << threads_log2;
  const int token = static_cast<int>(threadIdx.x) >> threads_log2;
  const int own = static_cast<int>(threadIdx.x) & (token_threads - 1);
  const std::uint32_t tokens_idx = arguments.slices.Quotient(blockIdx.x);
  const auto num_slices = static_cast<int>(arguments.slices.divisor());
  const int slice = static_cast<int>(blockIdx.x - tokens_idx * arguments.slices.divisor());
  const std::int64_t row = std::int64_t{tokens_idx} * (kRopeThreads >> threads_log2) + token;
  const bool has_row = row < arguments.angles.num_rows;
  const int first = slice * token_threads + own, step = num_slices * token_threads;

  const std::int64_t query_begin = row * arguments.query_elems;
  HeadRow<Piece, T> queries(arguments.pieces, static_cast<const T*>(arguments.query) + query_begin,
                            static_cast<T*>(arguments.turned_query) + query_begin, has_row ? arguments.query_pieces : 0, first,
                            step);
  queries.Load();  // on their way while angles are worked out
  const TokenSines sines(smem_sines + token * arguments.token_units);
  if (has_row) sines.Compute(arguments.angles, row, own, token_threads);
  __syncthreads();
  if (!has_row) return;
  queries.TurnAll(sines);

  const kv_cache::PagedRows& pages = arguments.append.to;
  const kv_cache::TokenSpan* const span = arguments.append.key == nullptr ? nullptr : kv_cache::FindSpan(pages, row);
  if (span == nullptr) return;  // a row of no token, or there are no pages
  const std::int64_t paged_row = kv_cache::PagedRow(pages, *span, row);
  HeadRow<Piece, T> keys(arguments.pieces, static_cast<const T*>(arguments.append.key) + row * arguments.key_elems,
                         static_cast<T*>(pages.pages.key) + paged_row * arguments.key_elems, arguments.key_pieces, first, step);
  keys.Load();
  keys.TurnAll(sines);
  const T* const value = static_cast<const T*>(arguments.append.value) + row * arguments.value_elems;
  T* const paged_value = static_cast<T*>(pages.pages.value) + paged_row * arguments.value_elems;
  for (int i = first * Piece::kElems; i < arguments.value_elems; i += step * Piece::kElems) {
    Piece::Copy(value + i, paged_value + i);
  }
}

}  // namespace ridgeline::kernels::fused
