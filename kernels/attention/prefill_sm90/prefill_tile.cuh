// The role of the warp that takes tiles: finds what the next one is, tells the others, loads its queries. It has a warp of its
// own because it takes the time of several blocks: loads of keys would wait.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/prefill_sm90/prefill_arguments.h"
#include "kernels/attention/prefill_sm90/prefill_mask.cuh"
#include "kernels/attention/prefill_sm90/prefill_schedule.h"
#include "kernels/attention/prefill_sm90/prefill_traits.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/tensor_copy.cuh"

namespace ridgeline::kernels::attention {

template <typename Traits>
class TileFinder {
  using Shared = typename Traits::SharedStorage;
  static constexpr unsigned kAllLanes = 0xffffffff;

 public:
  __device__ TileFinder(const PrefillArguments& arguments, Shared& shared)
      : arguments_(arguments), schedule_(arguments.schedule), shared_(shared) {}

  // By a whole warp: it looks at 32 sequences at once where they differ.
  __device__ __forceinline__ void Run() {
    RingPlace<Traits::kQueryBuffers> buffer;
    RingPlace<1> wanted;
    auto tile_idx = static_cast<int>(blockIdx.x);
    while (tile_idx < schedule_.num_tiles) {
      MBarrierWait(BarrierAt(shared_.query_empty, buffer.idx), buffer.parity ^ 1);
      Find(tile_idx, shared_.tiles[buffer.idx]);
      Announce(buffer.idx);
      buffer.Advance();
      MBarrierWaitAtEase(BarrierAt(shared_.tile_wanted, wanted.idx), wanted.parity);
      wanted.Advance();
      tile_idx = TakeNumber();
    }
    MBarrierWait(BarrierAt(shared_.query_empty, buffer.idx), buffer.parity ^ 1);
    AnnounceEnd(buffer.idx);
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  // Each part of a tile's description as soon as it is there: keys can be loaded before queries have come.
  __device__ __forceinline__ void Announce(int buffer) const {
    const PrefillTile& tile = shared_.tiles[buffer];
    __syncwarp();
    if (lane() == 0) {
      MBarrierArrive(BarrierAt(shared_.tile_known, buffer));
      LoadQueries(buffer);
    }
    if (lane() < Traits::kConsumers) shared_.walks[buffer][lane()] = WalkOfGroup<Traits>(schedule_, tile, lane());
    __syncwarp();
    if (lane() == 0) MBarrierArrive(BarrierAt(shared_.query_full, buffer));
  }
  __device__ __forceinline__ void AnnounceEnd(int buffer) const {
    if (lane() != 0) return;
    shared_.tiles[buffer].num_rows = 0;
    MBarrierArrive(BarrierAt(shared_.tile_known, buffer));
    MBarrierArrive(BarrierAt(shared_.query_full, buffer));
  }

  // The next tile of this block. Each block takes as many numbers as it has tiles, so the last number of a launch is known; who
  // takes it leaves the counter as it was: all ones.
  __device__ __forceinline__ int TakeNumber() const {
    int taken = 0;
    if (lane() == 0) {
      auto* const counter = static_cast<unsigned*>(arguments_.params.merge_workspace);
      taken = static_cast<int>(atomicAdd(counter, 1) + 1);
      if (taken == schedule_.num_tiles - 1) *counter = ~0u;
    }
    return __shfl_sync(kAllLanes, taken, 0) + static_cast<int>(gridDim.x);
  }

  // Where a tile lies.
  struct Place {
    int sequence_idx, head, tile;
  };

  __device__ __forceinline__ void Find(int tile_idx, PrefillTile& found) const {
    if (schedule_.tiles_per_head > 0) {
      const Place place = PlaceAmongEqual(tile_idx);
      if (lane() == 0) Describe(place, SequenceAmongEqual(place.sequence_idx), found);
    } else {
      const Place place = PlaceAmongDifferent(tile_idx);
      if (lane() == 0) Describe(place, arguments_.params.sequences[place.sequence_idx], found);
    }
  }

  __device__ __forceinline__ Place PlaceAmongEqual(int tile_idx) const {
    const TileOfHead found = TileAmongEqual(schedule_, tile_idx);
    const int query_heads = static_cast<int>(arguments_.params.shape.query_heads);
    const int sequence_idx = found.head / query_heads;
    return {sequence_idx, found.head - sequence_idx * query_heads, found.tile};
  }

  __device__ __forceinline__ Sequence SequenceAmongEqual(int sequence_idx) const {
    const Sequence& first = schedule_.first;
    const Sequence& stride = schedule_.stride;
    return {.query_begin = first.query_begin + sequence_idx * stride.query_begin,
            .query_tokens = first.query_tokens,
            .key_begin = first.key_begin + sequence_idx * stride.key_begin,
            .key_tokens = first.key_tokens,
            .lse_begin = first.lse_begin + sequence_idx * stride.lse_begin};
  }

  // Tiles are counted sequence by sequence, head by head, and of a head the last come first: under a causal mask they see the
  // most keys.
  __device__ __forceinline__ Place PlaceAmongDifferent(int tile_idx) const {
    const AttentionParams& params = arguments_.params;
    const int query_heads = static_cast<int>(params.shape.query_heads);
    for (int base = 0;; base += 32) {
      const int candidate = base + lane();
      int tiles = 0;
      if (candidate < params.shape.num_sequences) {
        const int query_tokens = static_cast<int>(params.sequences[candidate].query_tokens);
        tiles = (query_tokens + Traits::kTileRows - 1) / Traits::kTileRows;
      }
      int end = tiles * query_heads;
      for (int distance = 1; distance < 32; distance *= 2) {
        const int before = __shfl_up_sync(kAllLanes, end, distance);
        if (lane() >= distance) end += before;
      }
      const unsigned beyond = __ballot_sync(kAllLanes, tile_idx < end);
      const int found = beyond == 0 ? 31 : __ffs(static_cast<int>(beyond)) - 1;
      if (beyond == 0) {
        tile_idx -= __shfl_sync(kAllLanes, end, 31);
        continue;
      }
      tiles = __shfl_sync(kAllLanes, tiles, found);
      tile_idx -= __shfl_sync(kAllLanes, end, found) - tiles * query_heads;
      return {base + found, tile_idx / tiles, tiles - 1 - tile_idx % tiles};
    }
  }

  __device__ __forceinline__ void Describe(const Place& place, const Sequence& sequence, PrefillTile& tile) const {
    const int query_tokens = static_cast<int>(sequence.query_tokens), key_tokens = static_cast<int>(sequence.key_tokens);
    const int row_begin = place.tile * Traits::kTileRows;
    const int num_rows = min(query_tokens - row_begin, Traits::kTileRows);
    const int position = row_begin + key_tokens - query_tokens;
    // Keys that some row sees; where there are none, a block is walked in vain.
    const int key_end = min(position + num_rows + schedule_.window_right, key_tokens);
    const int key_begin = max(position - schedule_.window_left, 0);
    tile.last_block = max(key_end - 1, 0) / Traits::kTileKeys;
    tile.first_block = min(key_begin / Traits::kTileKeys, tile.last_block);
    tile.num_rows = num_rows;
    tile.row_begin = row_begin;
    tile.query_token = static_cast<int>(sequence.query_begin) + row_begin;
    tile.query_head = place.head;
    tile.kv_head = place.head /
                   (static_cast<int>(arguments_.params.shape.query_heads) / static_cast<int>(arguments_.params.shape.kv_heads));
    tile.sequence_idx = place.sequence_idx;
    tile.position = position;
    tile.key_tokens = key_tokens;
    tile.key_begin = sequence.key_begin;
    tile.lse_idx = sequence.lse_begin + place.head * arguments_.params.lse_head_stride_elems + row_begin;
  }

  // Rows beyond the tile's are its neighbours', or zeros: nobody looks at what becomes of them.
  __device__ __forceinline__ void LoadQueries(int buffer) const {
    const PrefillTile& tile = shared_.tiles[buffer];
    const std::uint32_t barrier = BarrierAt(shared_.query_full, buffer);
    const std::uint32_t destination = SharedAddress(shared_.query) + buffer * Traits::kQueryBytes;
    MBarrierExpect(barrier, Traits::kQueryBytes);
#pragma unroll
    for (int chunk = 0; chunk < Traits::kHeadChunks; ++chunk) {
      TensorLoad(destination + chunk * Traits::kQueryChunkBytes, &arguments_.query, barrier,
                 {chunk * 64, tile.query_head, tile.query_token, 0});
    }
  }

  const PrefillArguments& arguments_;
  const PrefillSchedule& schedule_;
  Shared& shared_;
};

}  // namespace ridgeline::kernels::attention
