// How the Hopper prefill kernel divides a launch: filled by the plan on the host, read by the kernel.
//
//   sequence ─► query head ─► tiles of at most TileRows() query rows, each of which walks the keys that its rows see
#pragma once

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
  // that their keys and values stay in the L2 cache; then the short ones of all heads, which fill the launch's end.
  bool longest_first = false;
  int group_heads = 1;
  int short_tiles = 0;

  int query_tokens = 0;  // of all sequences together: where the last one ends
  int key_tokens = 0;    // likewise, if keys are not in pages
  int window_left = 0;   // clipped to what ints hold
  int window_right = 0;
  int copy_keys = 0;         // rows of one tensor copy of keys or values: a block's, or what of it lies in one page for sure
  FastDivision page_tokens;  // if keys and values lie in pages
};

}  // namespace ridgeline::kernels::attention
