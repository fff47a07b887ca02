// What a block knows of its tile. In shared memory: registers are for fragments.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/flash/find_tile.cuh"
#include "kernels/attention/flash/flash_arguments.h"
#include "kernels/attention/flash/row_mask.cuh"
#include "kernels/attention/visible_range.h"

namespace ridgeline::kernels::attention {

template <int kTileRows>
struct TileFacts {
  Sequence sequence;
  std::int64_t sequence_idx;
  std::int64_t kv_head;
  std::int64_t query_begin;  // query of row 0
  std::int64_t block_begin;  // first block of keys that the split walks
  VisibleRange visible;
  int num_rows;
  int num_blocks;       // of keys
  BlockRange unmasked;  // blocks, counted from block_begin, that every query sees as a whole
  int split;

  // By row. Rows beyond num_rows are copies of the last one.
  std::int64_t token_head[kTileRows];  // row of [query tokens * Hq], the layout of query, output and partial results
  std::int64_t lse_idx[kTileRows];     // element of log_sum_exp
  int query[kTileRows];                // counted from query_begin
  int query_head[kTileRows];

  // By all threads, at least kTileRows of them, which are synchronised afterwards. Blocks have `tile_keys` keys.
  __device__ void Find(const FlashArguments& arguments, int tile_keys) {
    const TileSchedule& schedule = arguments.schedule;
    const Tile tile = FindTile(schedule, arguments.params.sequences, blockIdx.x);
    const Sequence found = arguments.params.sequences[tile.sequence_idx];
    const std::int64_t row_begin = tile.tile * schedule.tile_rows;
    const std::int64_t row_end = min(row_begin + schedule.tile_rows, schedule.NumRows(found.query_tokens));
    const int row = static_cast<int>(threadIdx.x);
    if (row < kTileRows) FindRow(arguments, found, tile, row_begin, min(row_begin + row, row_end - 1));
    if (row == 0) {
      sequence = found;
      sequence_idx = tile.sequence_idx;
      kv_head = schedule.packed_heads > 1 ? tile.head : tile.head / arguments.params.shape.GroupHeads();
      query_begin = row_begin / schedule.packed_heads;
      num_rows = static_cast<int>(row_end - row_begin);
      split = tile.split;
      visible = VisibleRange(arguments.params.shape, found.query_tokens, found.key_tokens);
      FindBlocks((row_end - 1) / schedule.packed_heads + 1, schedule.key_splits, tile_keys);
    }
    __syncthreads();
  }

 private:
  __device__ void FindRow(const FlashArguments& arguments, const Sequence& found, const Tile& tile, std::int64_t row_begin,
                          std::int64_t row) {
    const AttentionParams& params = arguments.params;
    const int packed_heads = arguments.schedule.packed_heads;
    const std::int64_t query_idx = row / packed_heads;
    const std::int64_t head = tile.head * packed_heads + row % packed_heads;
    token_head[threadIdx.x] = (found.query_begin + query_idx) * params.shape.query_heads + head;
    lse_idx[threadIdx.x] = found.lse_begin + head * params.lse_head_stride_elems + query_idx;
    query[threadIdx.x] = static_cast<int>(query_idx - row_begin / packed_heads);
    query_head[threadIdx.x] = static_cast<int>(head);
  }

  __device__ void FindBlocks(std::int64_t query_end, int key_splits, int tile_keys) {
    const KeyRange all = visible.OfQueries(query_begin, query_end);
    const KeyRange common = visible.OfEveryQuery(query_begin, query_end);
    const std::int64_t first = all.begin / tile_keys;
    const std::int64_t count = all.size() == 0 ? 0 : (all.end + tile_keys - 1) / tile_keys - first;
    block_begin = first + count * split / key_splits;
    num_blocks = static_cast<int>(first + count * (split + 1) / key_splits - block_begin);
    unmasked = {static_cast<int>((common.begin + tile_keys - 1) / tile_keys - block_begin),
                static_cast<int>(common.end / tile_keys - block_begin)};
  }
};

}  // namespace ridgeline::kernels::attention
