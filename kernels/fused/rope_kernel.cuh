// Rotary embedding, fused with the append to a paged KV cache: a block takes a few tokens, works out their sines and cosines
// once, and turns all their heads by them.
//
//   position ─► angles of head_dim / 2 pairs ─► shared memory ─┐
//   gmem queries, keys ──16-byte words──► registers ── turned ─┴─► gmem queries; pages of keys
//   gmem values ───────────────────────────────────────────────► pages of values
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fused/rope_angle.h"
#include "kernels/fused/token_position.cuh"
#include "kernels/fused/vectors.cuh"
#include "kernels/kv_cache/find_token.cuh"
#include "kernels/kv_cache/kv_cache.h"

namespace ridgeline::kernels::fused {

inline constexpr int kRopeThreads = 256;

struct RopeArguments {
  AngleArguments angles;
  const void* query;                        // [R, query_elems] or null
  void* turned_query;                       // [R, query_elems]
  kv_cache::AppendParams append;            // keys null: none
  int query_elems, key_elems, value_elems;  // of a token; 0 where there are none
  int block_tokens;
};

// A piece of a head that one thread turns or copies: words of 16 bytes, or single elements where words don't fit.
template <typename T, RopeLayout kLayout, bool kWords>
struct RopePiece {
  static constexpr int kElems = kWords ? kVectorElems<T> : 1;
  // Interleaved, a word has the first and the second elements of its pairs.
  static constexpr bool kHasPairsInWord = kWords && kLayout == RopeLayout::kInterleaved;
  static constexpr int kPairs = kHasPairsInWord ? kElems / 2 : kElems;

  static __device__ __forceinline__ void Copy(const T* from, T* to) {
    if constexpr (kWords) {
      __stcs(reinterpret_cast<uint4*>(to), LoadWord<T, Reuse::kNever>(from).bits);
    } else {
      *to = *from;
    }
  }

  static __device__ __forceinline__ void Turn(float& first, float& second, float2 sine_cosine) {
    const float turned = first * sine_cosine.y - second * sine_cosine.x;
    second = first * sine_cosine.x + second * sine_cosine.y;
    first = turned;
  }

  // Turns pairs [pair, pair + kPairs) of a head.
  static __device__ __forceinline__ void Turn(const T* head, T* turned, int pair, int rotary_dim, const float2* sines_cosines) {
    if constexpr (kHasPairsInWord) {
      float x[kElems];
      LoadWord<T, Reuse::kNever>(head + 2 * pair).Unpack(x);
#pragma unroll
      for (int i = 0; i < kPairs; ++i) Turn(x[2 * i], x[2 * i + 1], sines_cosines[pair + i]);
      __stcs(reinterpret_cast<uint4*>(turned + 2 * pair), Vector<T>::Pack(x).bits);
    } else if constexpr (kWords) {
      float x[kElems], y[kElems];
      const int second = pair + rotary_dim / 2;
      const Vector<T> first_word = LoadWord<T, Reuse::kNever>(head + pair);
      LoadWord<T, Reuse::kNever>(head + second).Unpack(y);
      first_word.Unpack(x);
#pragma unroll
      for (int i = 0; i < kPairs; ++i) Turn(x[i], y[i], sines_cosines[pair + i]);
      __stcs(reinterpret_cast<uint4*>(turned + pair), Vector<T>::Pack(x).bits);
      __stcs(reinterpret_cast<uint4*>(turned + second), Vector<T>::Pack(y).bits);
    } else {
      const int first = kLayout == RopeLayout::kInterleaved ? 2 * pair : pair;
      const int second = kLayout == RopeLayout::kInterleaved ? first + 1 : pair + rotary_dim / 2;
      float x = ToFloat(head[first]), y = ToFloat(head[second]);
      Turn(x, y, sines_cosines[pair]);
      turned[first] = FromFloat<T>(x);
      turned[second] = FromFloat<T>(y);
    }
  }
};

// The heads of one row of queries or keys, by the threads of the block, each from its own piece on.
template <typename Piece, typename T>
__device__ __forceinline__ void TurnHeads(const AngleArguments& angles, const T* from, T* to, int elems, int piece, int step,
                                          const float2* sines_cosines) {
  const int turning_pieces = angles.rotary_dim / 2 / Piece::kPairs;
  const int head_pieces = turning_pieces + (angles.head_dim - angles.rotary_dim) / Piece::kElems;
  const int num_pieces = elems / angles.head_dim * head_pieces;
  for (; piece < num_pieces; piece += step) {
    const int head_begin = piece / head_pieces * angles.head_dim;
    const int place = piece % head_pieces;
    if (place < turning_pieces) {
      Piece::Turn(from + head_begin, to + head_begin, place * Piece::kPairs, angles.rotary_dim, sines_cosines);
    } else {
      const int element = head_begin + angles.rotary_dim + (place - turning_pieces) * Piece::kElems;
      Piece::Copy(from + element, to + element);
    }
  }
}

template <typename T, RopeLayout kLayout, bool kWords>
__global__ void __launch_bounds__(kRopeThreads) RopeKernel(const __grid_constant__ RopeArguments arguments) {
  using Piece = RopePiece<T, kLayout, kWords>;
  extern __shared__ float2 smem_sines_cosines[];  // [block_tokens, rotary_dim / 2]
  const AngleArguments& angles = arguments.angles;
  const int pairs = angles.rotary_dim / 2;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * arguments.block_tokens;
  for (int i = static_cast<int>(threadIdx.x); i < arguments.block_tokens * pairs; i += kRopeThreads) {
    const std::int64_t row = first_row + i / pairs;
    if (row >= angles.num_rows) break;
    const float revolutions = angles.rates.Revolutions(PositionOf(angles, row), i % pairs);
    sincospif(2 * revolutions, &smem_sines_cosines[i].x, &smem_sines_cosines[i].y);
  }
  __syncthreads();

  const int token_threads = kRopeThreads / arguments.block_tokens;
  const int token = static_cast<int>(threadIdx.x) / token_threads;
  const std::int64_t row = first_row + token;
  if (token >= arguments.block_tokens || row >= angles.num_rows) return;
  const int own = static_cast<int>(threadIdx.x) % token_threads;
  const float2* const sines_cosines = smem_sines_cosines + token * pairs;
  const kv_cache::PagedRows& pages = arguments.append.to;
  const bool appends = arguments.append.key != nullptr;
  const kv_cache::TokenSpan* const span = appends ? kv_cache::FindSpan(pages, row) : nullptr;

  if (arguments.query != nullptr) {
    const std::int64_t begin = row * arguments.query_elems;
    TurnHeads<Piece>(angles, static_cast<const T*>(arguments.query) + begin, static_cast<T*>(arguments.turned_query) + begin,
                     arguments.query_elems, own, token_threads, sines_cosines);
  }
  if (span == nullptr) return;  // a row of no token, or there are no pages
  const std::int64_t paged_row = kv_cache::PagedRow(pages, *span, row);
  TurnHeads<Piece>(angles, static_cast<const T*>(arguments.append.key) + row * arguments.key_elems,
                   static_cast<T*>(pages.pages.key) + paged_row * arguments.key_elems, arguments.key_elems, own, token_threads,
                   sines_cosines);
  const T* const value = static_cast<const T*>(arguments.append.value) + row * arguments.value_elems;
  T* const paged_value = static_cast<T*>(pages.pages.value) + paged_row * arguments.value_elems;
  for (int i = own * Piece::kElems; i < arguments.value_elems; i += token_threads * Piece::kElems) {
    Piece::Copy(value + i, paged_value + i);
  }
}

}  // namespace ridgeline::kernels::fused
