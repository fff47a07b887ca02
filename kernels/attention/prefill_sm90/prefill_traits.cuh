// What the Hopper prefill kernel must know at compile time, and its shared memory.
//
//   query[buffer]   one tile's queries, later its output:  [64 columns][tile rows] of 128 bytes, swizzled
//   ring[stage]     one block's keys or values:            [64 columns][tile keys] of 128 bytes, swizzled
//   tiles[buffer]   what is known of a tile, walks[buffer] of each warpgroup's part
//   barriers        who waits for whom: prefill_kernel.cuh
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/prefill_sm90/prefill_shape.h"
#include "kernels/common/shared_memory.cuh"

namespace ridgeline::kernels::attention {

// One tile, as the warp that takes it tells the others. Counts fit ints: a batch has at most kMaxIntTokens.
struct PrefillTile {
  int num_rows;     // that exist; 0: there are no more tiles
  int row_begin;    // query of the first row in its sequence
  int query_token;  // and in the packed arrays
  int query_head;
  int kv_head;
  int sequence_idx;
  int position;     // key position that the first row is aligned to
  int key_tokens;   // of the sequence
  int first_block;  // blocks of keys [first_block, last_block] have all that some row sees; walked from the last to the first
  int last_block;
  std::int64_t key_begin;  // first token in key and value, or the sequence's first entry in the block table
  std::int64_t lse_idx;    // element of log_sum_exp of the first row
};

// What a warpgroup's rows see of the blocks that the tile walks: it walks its own from last_block down to first_block, after
// those before them have passed by.
struct alignas(16) GroupWalk {
  int last_block;
  int first_block;
  int num_skipped;           // blocks at the tile's end that none of its rows sees
  int full_begin, full_end;  // blocks [full_begin, full_end) are seen as a whole by every row
  int present_keys;          // of last_block; more than a block: all
  int has_few_keys;          // 1: some row sees so few keys that one of them may outweigh the others
};

template <typename Elem, int kShapeIdx, LogitOption kLogitOption_>
struct PrefillTraits {
  using T = Elem;
  static constexpr PrefillShape kShape = kPrefillShapes[kShapeIdx];
  static constexpr LogitOption kLogitOption = kLogitOption_;
  static constexpr bool kHasLogitOptions = kLogitOption != LogitOption::kNone;
  static constexpr int kHeadDim = kShape.head_dim;
  static constexpr int kValueHeadDim = kShape.value_head_dim;
  static constexpr int kTileRows = kShape.TileRows();
  static constexpr int kTileKeys = kShape.TileKeys(kLogitOption);
  static constexpr int kConsumers = kShape.consumers;
  static constexpr int kStages = kShape.stages;
  static constexpr int kQueryBuffers = kShape.query_buffers;
  // Weights computed early need registers too.
  static constexpr int kEarlyWeights = kShape.EarlyWeights(kLogitOption);
  static constexpr bool kBeginsEarly = kShape.begins_early && kLogitOption != LogitOption::kAny;
  // Whether steps whose block no mask cuts have code of their own.
  static constexpr bool kHasPlainSteps = !kHasLogitOptions || (kQueryBuffers > 1 && kConsumers < 4);
  // With one buffer for queries, the next tile's can only come when this one's output has gone.
  static constexpr bool kOverlapsTiles = kQueryBuffers > 1;
  // A row's largest weight is 1 if its first block is weighed by its maximum, and not rounded: more exact where many keys weigh
  // as much. That shows least where tiles follow one another anyway. Options push keys apart.
  static constexpr bool kBeginsWithMaximum = !kOverlapsTiles || kHasLogitOptions;

  static constexpr int kGroupThreads = 128;  // of a warpgroup
  static constexpr int kThreads = kGroupThreads * (kConsumers + 1);
  // What the launch gives to each thread, and what the roles make of it.
  static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 232 : kConsumers == 3 ? 160 : 112;
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <= (kConsumers + 1) * kLaunchRegisters,
                "who asks for more registers than there are waits for ever");

  static constexpr int kRowBytes = 128;  // of a swizzled row: 64 columns
  static constexpr int kHeadChunks = (kHeadDim + 63) / 64;
  static constexpr int kValueChunks = (kValueHeadDim + 63) / 64;
  static_assert(kValueChunks <= kHeadChunks, "the output lies where the queries did, values where keys did");
  static_assert(kTileKeys % 16 == 0, "P·V consumes keys in groups of 16");
  static_assert(kHeadDim % 16 == 0, "Q·Kᵀ consumes columns in groups of 16");

  static constexpr int kQueryChunkBytes = kTileRows * kRowBytes;
  static constexpr int kQueryBytes = kHeadChunks * kQueryChunkBytes;
  static constexpr int kBlockChunkBytes = kTileKeys * kRowBytes;
  static constexpr int kStageBytes = kHeadChunks * kBlockChunkBytes;
  static constexpr int kGroupRows = 64;                       // of a warpgroup
  static constexpr int kGroupBytes = kGroupRows * kRowBytes;  // of its rows in a chunk
  static constexpr int kWarpBytes = kGroupBytes / 4;

  struct SharedStorage {
    alignas(1024) char query[kQueryBuffers][kQueryBytes];
    alignas(1024) char ring[kStages][kStageBytes];
    PrefillTile tiles[kQueryBuffers];
    GroupWalk walks[kQueryBuffers][kConsumers];
    std::uint64_t tile_wanted[1];
    std::uint64_t tile_known[kQueryBuffers];
    std::uint64_t query_full[kQueryBuffers];
    std::uint64_t output_full[kQueryBuffers];
    std::uint64_t query_empty[kQueryBuffers];
    std::uint64_t ring_full[kStages];
    std::uint64_t ring_empty[kStages];
  };
  static_assert(sizeof(SharedStorage) <= 227 << 10, "fits a block's shared memory");
};

// A place in a ring of kLength, and the parity of the lap.
template <int kLength>
struct RingPlace {
  int idx = 0;
  std::uint32_t parity = 0;

  __device__ __forceinline__ void Advance() {
    if (++idx == kLength) {
      idx = 0;
      parity ^= 1;
    }
  }
};

// Shared address of a 16-byte chunk, of the first eight, in swizzled rows that begin at a multiple of 1024. The chunk 2i
// further on, for an even one or the odd one after it, lies at this address ^ 32i.
__device__ __forceinline__ std::uint32_t RowChunkAddress(std::uint32_t rows, int row, int chunk) {
  return rows + static_cast<std::uint32_t>(row * 128 + ((chunk ^ row % 8) << 4));
}

// The same address, computed where it is used: kept from before it would take registers that the fragments need.
__device__ __forceinline__ std::uint32_t ComputedHere(std::uint32_t address) {
  asm volatile("" : "+r"(address));
  return address;
}

// This thread's lane. With options likewise: their code leaves no registers for what a tile's end derives from it.
template <typename Traits>
__device__ __forceinline__ int LaneHere() {
  if constexpr (!Traits::kHasLogitOptions) return static_cast<int>(threadIdx.x) % 32;
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// A number that is the same in all lanes of a warp, so that the compiler knows it too: what depends on it then goes to uniform
// registers, and control flow needs no care for lanes that part.
__device__ __forceinline__ int AlikeInWarp(int number) {
  asm volatile("" : "+r"(number));
  return __shfl_sync(0xffffffff, number, 0);
}

// Shared address of element `idx` of an array of barriers.
template <int kLength>
__device__ __forceinline__ std::uint32_t BarrierAt(std::uint64_t (&barriers)[kLength], int idx) {
  return SharedAddress(barriers) + static_cast<std::uint32_t>(idx * sizeof(std::uint64_t));
}

}  // namespace ridgeline::kernels::attention
