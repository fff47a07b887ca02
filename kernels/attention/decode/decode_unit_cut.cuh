// Few uneven sequences: each unit is cut by itself. A block whose share has a unit's end inside it is held up there for about
// as long as 40 KB take; and where little is to be read at all, a block can read half as much more than others in the same
// time.
#pragma once

#include <cuda_runtime.h>

#include "kernels/attention/decode/decode_sequences.cuh"

namespace ridgeline::kernels::attention {

// Work of fewer tiles is not worth a block of its own.
inline constexpr int kFewestTilesLog2 = 2;

// What a block does of the one unit that it has to do with.
struct UnitPart {
  int parts;  // of the unit; 0: units are not cut by themselves, and the rest means nothing
  int part;   // the block's; not below `parts`: it has no work
  int sequence_idx;
  int head_group;
  int tiles;  // of the unit
};

// The sum of the lanes' values up to each lane's own.
__device__ __forceinline__ int SumOfLanesUpTo(int value) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(kAllLanes, value, distance);
    if (lane >= distance) value += other;
  }
  return value;
}

// Into how many parts each unit of the sequence with the lane's number is cut, so that there are blocks for all; 0 for all if a
// part would have to be more than half as long again as blocks' shares of the line are.
__device__ __forceinline__ int PartsOfUnits(int lane_tiles, int all_tiles, int head_groups) {
  const int num_blocks = static_cast<int>(gridDim.x);
  const int line = all_tiles * head_groups;
  const int usual = max(line / num_blocks, 1 << kFewestTilesLog2);
  // A unit's tiles seldom are a multiple of what its parts may have.
  const int num_units = __popc(__ballot_sync(kAllLanes, lane_tiles > 0)) * head_groups;
  const int blocks_to_fill = max(num_blocks - num_units * 3 / 8, 1);
#pragma unroll 1
  for (int most = max(usual, line / blocks_to_fill); 2 * most <= 3 * usual; most += most / 16 + 1) {
    const int parts = static_cast<int>(static_cast<unsigned>(lane_tiles + most - 1) / static_cast<unsigned>(most));
    if (static_cast<int>(__reduce_add_sync(kAllLanes, parts)) * head_groups <= num_blocks) return parts;
  }
  return 0;
}

// The block's part. `lane_tiles` are those of one head of the sequence that has the lane's number, of up to 32, and `all_tiles`
// their sum. Not inlined: what other launches don't run is not to lie in the way to their first copies.
static __device__ __noinline__ UnitPart CutUnits(int lane_tiles, int all_tiles, int head_groups) {
  const int lane_parts = PartsOfUnits(lane_tiles, all_tiles, head_groups);
  const int lane_end = SumOfLanesUpTo(lane_parts * head_groups);  // in blocks
  const int num_parts = __shfl_sync(kAllLanes, lane_end, 31);
  if (static_cast<int>(blockIdx.x) >= num_parts) return {.parts = num_parts, .part = num_parts};
  const int lane = __ffs(static_cast<int>(__ballot_sync(kAllLanes, static_cast<int>(blockIdx.x) < lane_end))) - 1;
  const auto from = [lane](int value) { return __shfl_sync(kAllLanes, value, lane); };
  UnitPart unit = {.parts = from(lane_parts), .sequence_idx = lane, .tiles = from(lane_tiles)};
  const int in_sequence = static_cast<int>(blockIdx.x) - (from(lane_end) - unit.parts * head_groups);
  unit.head_group = static_cast<int>(static_cast<unsigned>(in_sequence) / static_cast<unsigned>(unit.parts));
  unit.part = in_sequence - unit.head_group * unit.parts;
  return unit;
}

}  // namespace ridgeline::kernels::attention
