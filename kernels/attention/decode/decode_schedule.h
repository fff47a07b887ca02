// How the decode kernel divides a launch, as far as the host decides it: by shapes alone. Lengths are read on the device, so
// that they may change between replays of a graph.
#pragma once

#include <cstdint>

#include "kernels/common/fast_division.h"

namespace ridgeline::kernels::attention {

// A sequence's parts are summed by one block.
inline constexpr int kMostUnevenParts = 8;

struct DecodeSchedule {
  int num_blocks = 0;       // of the grid, at most what is resident at once; 0: the plan is none for decode
  int warps_log2 = 0;       // of a block
  int head_dim = 0;         // of the kernel: columns of query, key and value as padded
  int rows = 0;             // most packed rows of a KV head: query tokens * Hq/Hkv
  bool hides_keys = false;  // a window may hide keys of some sequence from some of its rows

  FastDivision group_heads;  // by Hq/Hkv
  FastDivision page_tokens;

  // Work is counted in tiles, 16 keys and their values, of one KV head of each sequence.
  std::int64_t fitting_tiles = 0;  // up to so many stay in the L2 cache
  std::int64_t kept_tiles = 0;     // of more, so many
  std::int64_t large_tiles = 0;    // from so many on, blocks walk `large` heads
  std::int64_t aligned_tiles = 0;  // up to so many, equal sequences are cut at their ends, and others walked as `uneven` ones

  // KV heads that a block walks together, a power of two that divides Hkv and the warps; and the blocks that there are for each
  // such group of heads of a sequence, 0 if there are more groups than blocks.
  struct Heads {
    int heads_log2 = 0;
    int head_groups = 1;  // of a sequence
    int blocks_per_group = 0;
  };
  Heads large;
  Heads uneven;  // but not if the longest sequence would have more than kMostUnevenParts parts
  Heads apart;   // all else
};

}  // namespace ridgeline::kernels::attention
