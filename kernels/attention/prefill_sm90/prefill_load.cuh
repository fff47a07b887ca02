// The role of the warp that takes tiles and loads their keys and values into the ring, in the order in which consumers take
// them:
//
//   K last │ K last-1, V last │ K last-2, V last-1 │ ... │ K first, V first+1 │ K of the next tile, V first
//
// so that a tile's last product with values can run beside the next one's first with keys. Without overlap V first comes
// before.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/prefill_sm90/prefill_arguments.h"
#include "kernels/attention/prefill_sm90/prefill_tile.cuh"
#include "kernels/attention/prefill_sm90/prefill_traits.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/tensor_copy.cuh"

namespace ridgeline::kernels::attention {

template <typename Traits>
class RingLoader {
  using Shared = typename Traits::SharedStorage;
  static constexpr unsigned kAllLanes = 0xffffffff;

 public:
  __device__ RingLoader(const PrefillArguments& arguments, Shared& shared) : arguments_(arguments), shared_(shared) {}

  // By a whole warp: where keys lie in pages, each lane looks one up. All copies are issued in one place of the code: there are
  // few registers.
  __device__ __forceinline__ void Run() {
    TileFinder<Traits> finder(arguments_, shared_);
    RingPlace<Traits::kQueryBuffers> buffer;
    int key_buffer = 0, key_block = -1;      // the next keys: which tile's, and which of its blocks
    int value_buffer = 0, value_block = -1;  // the next values, those of the keys before; -1: none
    for (bool has_more = true; has_more;) {
      if (key_block < 0 && (Traits::kOverlapsTiles || value_block < 0)) {
        has_more = finder.Next(buffer);
        if (has_more) {
          key_buffer = buffer.idx;
          key_block = shared_.tiles[key_buffer].last_block;
          page_ = LookUp(shared_.tiles[key_buffer], key_block);
          buffer.Advance();
        }
      }
#pragma unroll 1
      for (int i = key_block >= 0 ? 0 : 1; i < (value_block >= 0 ? 2 : 1); ++i) {
        Load(shared_.tiles[i == 0 ? key_buffer : value_buffer], i == 0 ? key_block : value_block, i == 1);
      }
      value_buffer = key_buffer;
      value_block = key_block;
      page_slot_ ^= 1;
      if (--key_block < shared_.tiles[key_buffer].first_block) key_block = -1;
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ __forceinline__ void Load(const PrefillTile& tile, int block, bool is_value) {
    const CUtensorMap* const map = is_value ? &arguments_.value : &arguments_.key;
    const int num_chunks = is_value ? Traits::kValueChunks : Traits::kHeadChunks;
    if (arguments_.params.block_table == nullptr) {
      LoadDense(map, tile, block, num_chunks);
    } else {
      LoadPages(map, tile, block, num_chunks, is_value);
    }
    stage_.Advance();
  }

  __device__ __forceinline__ void LoadDense(const CUtensorMap* map, const PrefillTile& tile, int block, int num_chunks) const {
    MBarrierWait(BarrierAt(shared_.ring_empty, stage_.idx), stage_.parity ^ 1);
    if (lane() != 0) return;
    const std::uint32_t full = BarrierAt(shared_.ring_full, stage_.idx);
    MBarrierArriveExpecting(full, num_chunks * Traits::kBlockChunkBytes);
    const std::uint32_t destination = SharedAddress(shared_.ring) + stage_.idx * Traits::kStageBytes;
    const int token = static_cast<int>(tile.key_begin) + block * Traits::kTileKeys;
#pragma unroll
    for (int chunk = 0; chunk < Traits::kHeadChunks; ++chunk) {
      if (chunk == num_chunks) break;
      TensorLoad(destination + chunk * Traits::kBlockChunkBytes, map, full, {chunk * 64, tile.kv_head, token, 0});
    }
  }

  // The page of this lane's piece of a block, requested a step before it is needed. A piece that has no key of the sequence has
  // none.
  __device__ __forceinline__ int LookUp(const PrefillTile& tile, int block) const {
    const PrefillSchedule& schedule = arguments_.schedule;
    const int key = block * Traits::kTileKeys + lane() * schedule.copy_keys;
    if (arguments_.params.block_table == nullptr || lane() * schedule.copy_keys >= Traits::kTileKeys ||
        key >= tile.key_tokens) {
      return 0;
    }
    return arguments_.params.block_table[tile.key_begin + schedule.page_tokens.Quotient(static_cast<std::uint32_t>(key))];
  }

  // Pieces of a block, each within one page. Those that have no key of the sequence are not loaded: their table entries may be
  // anything, and consumers look at no row beyond the last key.
  __device__ __forceinline__ void LoadPages(const CUtensorMap* map, const PrefillTile& tile, int block, int num_chunks,
                                            bool is_value) {
    const PrefillSchedule& schedule = arguments_.schedule;
    const int copy_keys = schedule.copy_keys;
    const int key_begin = block * Traits::kTileKeys;
    const int num_keys = min(tile.key_tokens - key_begin, Traits::kTileKeys);
    const int num_pieces = num_keys <= 0 ? 0 : (num_keys + copy_keys - 1) / copy_keys;
    static_assert(Traits::kTileKeys / 8 <= 32, "a lane looks up one piece");
    // Keys and, a step later, their values lie in the same pages.
    int* const pages = shared_.pages[is_value ? page_slot_ ^ 1 : page_slot_];
    const int page = is_value ? pages[lane()] : page_;
    if (!is_value) {
      pages[lane()] = page;
      if (block > tile.first_block) page_ = LookUp(tile, block - 1);
    }
    const int key = key_begin + lane() * copy_keys;
    const int token =
        key - static_cast<int>(schedule.page_tokens.Quotient(static_cast<std::uint32_t>(key)) * schedule.page_tokens.divisor());
    MBarrierWait(BarrierAt(shared_.ring_empty, stage_.idx), stage_.parity ^ 1);
    const std::uint32_t full = BarrierAt(shared_.ring_full, stage_.idx);
    const auto piece_bytes = static_cast<std::uint32_t>(copy_keys * Traits::kRowBytes);
    if (lane() == 0) MBarrierArriveExpecting(full, num_pieces * num_chunks * piece_bytes);
    std::uint32_t destination = SharedAddress(shared_.ring) + stage_.idx * Traits::kStageBytes;
#pragma unroll 1
    for (int piece = 0; piece < num_pieces; ++piece) {
      const int page_of_piece = __shfl_sync(kAllLanes, page, piece), token_of_piece = __shfl_sync(kAllLanes, token, piece);
      if (lane() == 0) {
#pragma unroll
        for (int chunk = 0; chunk < Traits::kHeadChunks; ++chunk) {
          if (chunk == num_chunks) break;
          TensorLoad(destination + chunk * Traits::kBlockChunkBytes, map, full,
                     {chunk * 64, tile.kv_head, token_of_piece, page_of_piece});
        }
      }
      destination += piece_bytes;
    }
  }

  const PrefillArguments& arguments_;
  Shared& shared_;
  RingPlace<Traits::kStages> stage_;
  int page_ = 0;       // of this lane's piece of the next keys
  int page_slot_ = 0;  // where the next keys' pages are kept for their values
};

}  // namespace ridgeline::kernels::attention
