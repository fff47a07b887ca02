// A block finds its tile by itself: no table is made on the host, and no memory but the sequences is read.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/flash/tile_schedule.h"

namespace ridgeline::kernels::attention {

// All are smaller than the number of blocks, which fits 31 bits; 64-bit divisions would take longer than loading the tile.
struct Tile {
  unsigned sequence_idx;
  unsigned head;  // query head, or KV head if packed
  unsigned tile;  // of that head
  int split;
};

struct Place {
  unsigned sequence_idx;
  unsigned tile;  // of the sequence's heads, one after the other
};

// Tiles are counted sequence by sequence. Called by whole warps, each lane of which looks at another sequence; `tile` exists.
__device__ inline Place FindSequence(const TileSchedule& schedule, const Sequence* sequences, unsigned tile) {
  constexpr unsigned kAllLanes = 0xffffffff;
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (unsigned base = 0;; base += 32) {
    unsigned end = 0;
    if (base + lane < schedule.num_sequences) {
      end = static_cast<unsigned>(schedule.NumTiles(sequences[base + lane].query_tokens) * schedule.heads);
    }
    for (int distance = 1; distance < 32; distance *= 2) {
      const unsigned before = __shfl_up_sync(kAllLanes, end, distance);
      if (lane >= distance) end += before;
    }
    const unsigned beyond = __ballot_sync(kAllLanes, tile < end);
    const int found = beyond == 0 ? 32 : __ffs(static_cast<int>(beyond)) - 1;
    const unsigned begin = __shfl_sync(kAllLanes, end, max(found - 1, 0));
    if (found > 0) tile -= begin;
    if (found < 32) return {base + found, tile};
  }
}

// Block index -> tile. Blocks that start one after the other share keys, and of one head the last rows come first: under a
// causal mask they see the most keys, and the longest work should not start last.
__device__ inline Tile FindTile(const TileSchedule& schedule, const Sequence* sequences, unsigned block) {
  const unsigned split = schedule.key_splits == 1 ? 0 : block % schedule.key_splits;
  Place place = {0, schedule.key_splits == 1 ? block : block / schedule.key_splits};
  auto tiles = static_cast<unsigned>(schedule.tiles_per_sequence);
  if (tiles > 0) {
    const unsigned sequence_tiles = tiles * static_cast<unsigned>(schedule.heads);
    place = {place.tile / sequence_tiles, place.tile % sequence_tiles};
  } else {
    place = FindSequence(schedule, sequences, place.tile);
    tiles = static_cast<unsigned>(schedule.NumTiles(sequences[place.sequence_idx].query_tokens));
  }
  return {place.sequence_idx, place.tile / tiles, tiles - 1 - place.tile % tiles, static_cast<int>(split)};
}

}  // namespace ridgeline::kernels::attention
