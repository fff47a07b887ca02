// Rotary embedding, fused with the append to a paged KV cache: a block takes a few tokens, works out their sines and cosines
// once, and turns all their heads by them.
//
//   gmem queries ──16-byte words──► registers ─────────────────┐
//   position ─► angles of rotary_dim / 2 pairs ─► shared memory ─┴─ turned ─► gmem queries; then keys ─► pages of keys
//   gmem values ───────────────────────────────────────────────► pages of values
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fused/rope_piece.cuh"
#include "kernels/fused/token_position.cuh"
#include "kernels/fused/vectors.cuh"
#include "kernels/kv_cache/find_token.cuh"
#include "kernels/kv_cache/kv_cache.h"

namespace ridgeline::kernels::fused {

inline constexpr int kRopeThreads = 128;
inline constexpr int kRopeBlocks = 8;       // at least, of an SM
inline constexpr int kRopePiecesAhead = 2;  // that a thread has on their way at a time

struct RopeArguments {
  AngleArguments angles;
  HeadPieces pieces;
  const void* query;                        // [R, query_elems] or null
  void* turned_query;                       // [R, query_elems]
  kv_cache::AppendParams append;            // keys null: none
  int query_elems, key_elems, value_elems;  // of a token; 0 where there are none
  int block_tokens;
};

// The heads of one row of queries or keys. The block's threads take their pieces in turn, kRopePiecesAhead at a time.
template <typename Piece, typename T>
class HeadRow {
 public:
  __device__ __forceinline__ HeadRow(const HeadPieces& pieces, const T* from, T* to, int elems, int first_piece, int step)
      : pieces_(pieces),
        from_(from),
        to_(to),
        num_pieces_(elems / pieces.head_dim * static_cast<int>(pieces.count.divisor())),
        piece_(first_piece),
        step_(step) {}

  // Reads the thread's next pieces.
  __device__ __forceinline__ void Load() {
#pragma unroll
    for (int i = 0; i < kRopePiecesAhead; ++i) ahead_[i].Load(pieces_, from_, piece_ + i * step_, num_pieces_);
  }

  // Turns what is loaded, and then what is left.
  __device__ __forceinline__ void TurnAll(const float2* sines_cosines) {
    while (true) {
#pragma unroll
      for (const Piece& piece : ahead_) piece.Store(pieces_, sines_cosines, to_);
      piece_ += kRopePiecesAhead * step_;
      if (piece_ >= num_pieces_) return;
      Load();
    }
  }

 private:
  const HeadPieces& pieces_;
  const T* const from_;
  T* const to_;
  const int num_pieces_;
  int piece_;
  const int step_;
  Piece ahead_[kRopePiecesAhead];
};

// Sines and cosines of the block's tokens, [block_tokens, rotary_dim / 2].
__device__ __forceinline__ void ComputeAngles(const RopeArguments& arguments, std::int64_t first_row, float2* sines_cosines) {
  const AngleArguments& angles = arguments.angles;
  const int pairs = angles.rotary_dim / 2;
  for (int i = static_cast<int>(threadIdx.x); i < arguments.block_tokens * pairs; i += kRopeThreads) {
    const std::int64_t row = first_row + i / pairs;
    if (row >= angles.num_rows) break;
    const float revolutions = angles.rates.Revolutions(PositionOf(angles, row), i % pairs);
    sincospif(2 * revolutions, &sines_cosines[i].x, &sines_cosines[i].y);
  }
}

template <typename T, RopeLayout kLayout, bool kWords>
__global__ void __launch_bounds__(kRopeThreads, kRopeBlocks) RopeKernel(const __grid_constant__ RopeArguments arguments) {
  using Piece = RopePiece<T, kLayout, kWords>;
  extern __shared__ float2 smem_sines_cosines[];
  const int token_threads = kRopeThreads / arguments.block_tokens;
  const int token = static_cast<int>(threadIdx.x) / token_threads, own = static_cast<int>(threadIdx.x) % token_threads;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * arguments.block_tokens;
  const std::int64_t row = first_row + token;
  const bool has_row = token < arguments.block_tokens && row < arguments.angles.num_rows;

  const std::int64_t query_begin = row * arguments.query_elems;
  HeadRow<Piece, T> queries(arguments.pieces, static_cast<const T*>(arguments.query) + query_begin,
                            static_cast<T*>(arguments.turned_query) + query_begin, has_row ? arguments.query_elems : 0, own,
                            token_threads);
  queries.Load();  // on their way while angles are worked out
  ComputeAngles(arguments, first_row, smem_sines_cosines);
  __syncthreads();
  if (!has_row) return;
  const float2* const sines_cosines = smem_sines_cosines + token * (arguments.angles.rotary_dim / 2);
  queries.TurnAll(sines_cosines);

  const kv_cache::PagedRows& pages = arguments.append.to;
  const kv_cache::TokenSpan* const span = arguments.append.key == nullptr ? nullptr : kv_cache::FindSpan(pages, row);
  if (span == nullptr) return;  // a row of no token, or there are no pages
  const std::int64_t paged_row = kv_cache::PagedRow(pages, *span, row);
  HeadRow<Piece, T> keys(arguments.pieces, static_cast<const T*>(arguments.append.key) + row * arguments.key_elems,
                         static_cast<T*>(pages.pages.key) + paged_row * arguments.key_elems, arguments.key_elems, own,
                         token_threads);
  keys.Load();
  keys.TurnAll(sines_cosines);
  const T* const value = static_cast<const T*>(arguments.append.value) + row * arguments.value_elems;
  T* const paged_value = static_cast<T*>(pages.pages.value) + paged_row * arguments.value_elems;
  for (int i = own * Piece::kElems; i < arguments.value_elems; i += token_threads * Piece::kElems) {
    Piece::Copy(value + i, paged_value + i);
  }
}

}  // namespace ridgeline::kernels::fused
