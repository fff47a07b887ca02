// What the mma kernel must know at compile time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/flash/mma_tile.cuh"
#include "kernels/attention/flash/tile_facts.cuh"

namespace ridgeline::kernels::attention {

// Elem: __half or __nv_bfloat16. kHeadDim: of queries, keys and values, as padded; smaller ones are filled up with zeros.
// kHasLogitOptions: soft cap, ALiBi, bias and scales that are not positive; without them logits are products times the scale,
// which then costs nothing.
// kGathersKeys: tokens of keys and values lie anywhere, as those in pages do; without it they are contiguous.
template <typename Elem, int kHeadDim_, int kTileRows_, int kTileKeys_, bool kHasLogitOptions_, bool kGathersKeys_>
struct MmaTraits {
  using T = Elem;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kTileRows = kTileRows_;
  static constexpr int kTileKeys = kTileKeys_;
  static constexpr bool kHasLogitOptions = kHasLogitOptions_;
  static constexpr bool kGathersKeys = kGathersKeys_;

  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kWarpRows = kTileRows / kWarps;

  // Small heads leave registers for the queries, which then are read from shared memory once.
  static constexpr bool kKeepsQuery = kHeadDim <= 64;

  // In units of mma.m16n8k16.
  static constexpr int kRowMmas = kWarpRows / 16;   // fragments of rows that a warp holds
  static constexpr int kKeyMmas = kTileKeys / 8;    // columns of S
  static constexpr int kDimSteps = kHeadDim / 16;   // of the sum in Q·Kᵀ
  static constexpr int kOutputMmas = kHeadDim / 8;  // columns of O
  static_assert(kWarpRows % 16 == 0, "a warp holds rows in fragments of 16");
  static_assert(kTileKeys % 16 == 0, "P·V consumes keys in groups of 16");

  // Fragments of S, later P, and of O: a lane's two rows of each 16, pairs of columns.
  using Scores = float[kRowMmas][kKeyMmas][4];
  using Output = float[kRowMmas][kOutputMmas][4];

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // Of the two rows of fragment `mma` that this lane holds: half 0 or 1.
  __device__ static int RowOf(int mma, int half) { return warp() * kWarpRows + mma * 16 + half * 8 + lane() / 4; }

  using QueryTile = MmaTile<T, kTileRows, kHeadDim, kThreads>;
  using KeyTile = MmaTile<T, kTileKeys, kHeadDim, kThreads>;

  using Facts = TileFacts<kTileRows>;
  static_assert(kThreads >= kTileRows, "a thread finds the facts of one row");

  struct SharedStorage {
    alignas(1024) char query[QueryTile::kBytes];  // the output at the end
    alignas(1024) char key[KeyTile::kBytes];
    alignas(1024) char value[KeyTile::kBytes];
    Facts facts;
    alignas(16) std::uint32_t key_token[2][kGathersKeys ? kTileKeys : 4];  // see GatheredBlocks
  };
  static_assert(sizeof(SharedStorage) <= 99 << 10, "fits the smallest shared memory since Ampere");

  // While one block's softmax runs, the other's products do: registers are rationed so that both fit on a multiprocessor.
  static constexpr int kBlocksPerSm = 2;
};

}  // namespace ridgeline::kernels::attention
