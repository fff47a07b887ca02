// Which part of the problem each block of a CUDA launch computes. Filled by the plan on the host, read by every kernel.
//
//   sequence ─► rows of one head: its Sq queries, or where they are few its Sq * (Hq/Hkv) queries of one KV head, query by
//               query with the heads of the group side by side ("packed")
//            ─► tiles of at most tile_rows rows ─► splits of the keys, where tiles are too few to keep the device busy
#pragma once

#include <cstdint>

namespace ridgeline::kernels::attention {

struct TileSchedule {
  std::int64_t num_sequences = 0;
  std::int64_t num_tiles = 0;           // of one head, over all sequences
  std::int64_t tiles_per_sequence = 0;  // 0: sequences differ
  std::int64_t heads = 0;               // query heads, or KV heads if packed
  int group_heads = 1;                  // Hq/Hkv
  int packed_heads = 1;                 // query heads side by side in the rows: 1, or group_heads
  int tile_rows = 1;
  int key_splits = 1;

  constexpr std::int64_t NumRows(std::int64_t query_tokens) const { return query_tokens * packed_heads; }
  constexpr std::int64_t NumTiles(std::int64_t query_tokens) const {
    return (NumRows(query_tokens) + tile_rows - 1) / tile_rows;
  }
  constexpr std::int64_t NumBlocks() const { return num_tiles * heads * key_splits; }
};

}  // namespace ridgeline::kernels::attention
