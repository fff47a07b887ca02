// A block finds its tile by itself: no table is made on the host, and no memory but the sequences is read.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/flash/tile_schedule.h"

namespace ridgeline::kernels::attention {

struct Tile {
  std::int64_t sequence_idx;
  std::int64_t head;  // query head, or KV head if packed
  std::int64_t tile;  // of that head
  int split;
};

struct Place {
  std::int64_t sequence_idx;
  std::int64_t tile;  // of the sequence's heads, one after the other
};

// Tiles are counted sequence by sequence. Called by whole warps, each lane of which looks at another sequence; `tile` exists.
__device__ inline Place FindSequence(const TileSchedule& schedule, const Sequence* sequences, std::int64_t tile) {
  constexpr unsigned kAllLanes = 0xffffffff;
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (std::int64_t base = 0;; base += 32) {
    std::int64_t end = 0;
    if (base + lane < schedule.num_sequences) {
      end = schedule.NumTiles(sequences[base + lane].query_tokens) * schedule.heads;
    }
    for (int distance = 1; distance < 32; distance *= 2) {
      const std::int64_t before = __shfl_up_sync(kAllLanes, end, distance);
      if (lane >= distance) end += before;
    }
    const unsigned beyond = __ballot_sync(kAllLanes, tile < end);
    const int found = beyond == 0 ? 32 : __ffs(static_cast<int>(beyond)) - 1;
    const std::int64_t begin = __shfl_sync(kAllLanes, end, max(found - 1, 0));
    if (found > 0) tile -= begin;
    if (found < 32) return {base + found, tile};
  }
}

// Block index -> tile. Blocks that start one after the other share keys, and of one head the last rows come first: under a
// causal mask they see the most keys, and the longest work should not start last.
__device__ inline Tile FindTile(const TileSchedule& schedule, const Sequence* sequences, std::int64_t block) {
  const std::int64_t split = block % schedule.key_splits;
  Place place = {0, block / schedule.key_splits};
  std::int64_t tiles = schedule.tiles_per_sequence;
  if (tiles > 0) {
    place.sequence_idx = place.tile / (tiles * schedule.heads);
    place.tile %= tiles * schedule.heads;
  } else {
    place = FindSequence(schedule, sequences, place.tile);
    tiles = schedule.NumTiles(sequences[place.sequence_idx].query_tokens);
  }
  return {place.sequence_idx, place.tile / tiles, tiles - 1 - place.tile % tiles, static_cast<int>(split)};
}

}  // namespace ridgeline::kernels::attention
