// How the Hopper prefill kernel divides a launch: filled by the plan on the host, read by the kernel.
//
//   sequence ─► query head ─► tiles of at most TileRows() query rows, each of which walks the keys that its rows see
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/common/fast_division.h"

namespace ridgeline::kernels::attention {

struct PrefillSchedule {
  int num_tiles = 0;   // of all sequences and heads; 0: the plan is none for this kernel
  int num_blocks = 0;  // of the grid: they take tiles as they come, in the order of their numbers
  int shape_idx = 0;   // in kPrefillShapes

  // Sequences that all look alike and lie one stride apart are computed instead of read: sequence s has begins of first + s *
  // stride and the lengths of first. Otherwise tiles_per_head is 0, and tiles are counted sequence by sequence.
  int tiles_per_head = 0;
  Sequence first = {};
  Sequence stride = {};

  // The order of equal sequences' tiles. Longest first: tiles from `short_tiles` up, the last first, in groups of so many heads
  // that their keys and values stay in the L2 cache, `last_heads` of them in the last group; then the short ones of all heads.
  // Either fills the launch's end with short tiles.
  bool longest_first = false;
  int group_heads = 1;
  int last_heads = 0;
  int short_tiles = 0;

  int query_tokens = 0;  // of all sequences together: where the last one ends
  int key_tokens = 0;    // likewise, if keys are not in pages
  int window_left = 0;   // clipped to what ints hold
  int window_right = 0;
  int copy_keys = 0;         // rows of one tensor copy of keys or values: a block's, or what of it lies in one page for sure
  FastDivision page_tokens;  // if keys and values lie in pages
};

// Heads are counted through all sequences, a head's tiles from its first query.
struct TileOfHead {
  int head;
  int tile;
};

// Which tile is the tile_idx-th, where sequences are equal.
constexpr TileOfHead TileAmongEqual(const PrefillSchedule& schedule, int tile_idx) {
  const int tiles = schedule.tiles_per_head;
  if (!schedule.longest_first) return {tile_idx / tiles, tile_idx % tiles};
  const int heads = schedule.num_tiles / tiles, long_tiles = tiles - schedule.short_tiles;
  if (tile_idx >= long_tiles * heads) {
    const int among_short = tile_idx - long_tiles * heads;
    return {among_short % heads, schedule.short_tiles - 1 - among_short / heads};
  }
  const int heads_before_last = heads - schedule.last_heads;
  int first_head = heads_before_last, group_heads = schedule.last_heads;
  int in_group = tile_idx - long_tiles * heads_before_last;
  if (in_group < 0) {
    const int tiles_of_group = schedule.group_heads * long_tiles;
    const int group = tile_idx / tiles_of_group;
    first_head = group * schedule.group_heads;
    group_heads = std::min(schedule.group_heads, heads_before_last - first_head);
    in_group = tile_idx - group * tiles_of_group;
  }
  return {first_head + in_group % group_heads, tiles - 1 - in_group / group_heads};
}

}  // namespace ridgeline::kernels::attention
