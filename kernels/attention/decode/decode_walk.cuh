// A block's way from unit to unit of its share.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/decode/decode_sequences.cuh"
#include "kernels/attention/decode/decode_shape.h"
#include "kernels/attention/decode/decode_share.cuh"

namespace ridgeline::kernels::attention {

// `begin` is the unit's first tile's place, counted from the share's begin: negative where the unit began before.
struct Unit {
  int sequence_idx;
  int head_group;
  int begin;
  SequenceKeys keys;

  __device__ int end() const { return begin + keys.tiles; }
  // First key of the tile at `place`.
  __device__ int KeyAt(int place) const { return (keys.first_tile + place - begin) * kDecodeTileKeys; }
};

// The unit in which the share begins.
template <bool kHasOptions>
__device__ __forceinline__ Unit FindUnit(const AttentionParams& params, const Survey<kHasOptions>& survey, const Share& share) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  SequenceKeys keys = survey.keys;
  int first = 0;                            // sequence of lane 0
  int source = max(share.sequence_idx, 0);  // lane of the sequence
  std::int64_t begin = 0;                   // of the lane's sequence on the line
  std::int64_t before = 0;                  // tiles of one head of the sequences that were passed
#pragma unroll 1
  while (share.sequence_idx < 0 && params.shape.num_sequences > 1) {
    const int end = SumOfLanesUpTo(keys.tiles);  // of 32 sequences: fits an int
    begin = (before + end - keys.tiles) * share.head_groups;
    const bool has_it = share.begin >= begin && share.begin < (before + end) * share.head_groups;
    const unsigned hit = __ballot_sync(kAllLanes, has_it);
    if (hit != 0) {
      source = __ffs(static_cast<int>(hit)) - 1;
      break;
    }
    before += __shfl_sync(kAllLanes, end, 31);
    first += 32;
    keys = first + lane < params.shape.num_sequences ? KeysOf<kHasOptions>(params, first + lane) : SequenceKeys{};
  }
  const auto from = [source](auto value) { return __shfl_sync(kAllLanes, value, source); };
  Unit unit = {.sequence_idx = first + source,
               .keys = {.begin = from(keys.begin),
                        .end = from(keys.end),
                        .first_tile = from(keys.first_tile),
                        .tiles = from(keys.tiles),
                        .table_begin = from(keys.table_begin)}};
  const std::int64_t into = share.begin - from(begin);  // the sequence's units
  unit.head_group = static_cast<int>(static_cast<std::uint64_t>(into) / static_cast<unsigned>(unit.keys.tiles));
  unit.begin = static_cast<int>(std::int64_t{unit.head_group} * unit.keys.tiles - into);
  return unit;
}

// There is a next unit: the caller knows of tiles further on.
template <bool kHasOptions>
__device__ __forceinline__ void MoveToNext(Unit& unit, const AttentionParams& params, const Share& share) {
  unit.begin += unit.keys.tiles;
  if (++unit.head_group < share.head_groups) return;
  unit.head_group = 0;
  do {
    unit.keys = KeysOf<kHasOptions>(params, ++unit.sequence_idx);
  } while (unit.keys.tiles == 0);
}

}  // namespace ridgeline::kernels::attention
