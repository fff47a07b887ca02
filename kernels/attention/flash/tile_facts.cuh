// What a block knows of its tile.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/flash/find_tile.cuh"
#include "kernels/attention/flash/flash_arguments.h"
#include "kernels/attention/flash/row_mask.cuh"
#include "kernels/attention/visible_range.h"

namespace ridgeline::kernels::attention {

// Enough to start copying; every thread finds it by itself. A sequence has at most kMaxIntTokens, so that positions are ints.
struct TilePlace {
  Tile tile;
  Sequence sequence;
  int kv_head;
  int row_begin;  // in the rows of its head
  int num_rows;
  int query_begin;  // query of the first row
  int block_begin;  // first block of keys that the split walks
  int num_blocks;
  BlockRange unmasked;  // blocks, counted from block_begin, that every query sees as a whole
};

__device__ inline int QueryOfRow(const TileSchedule& schedule, int row) {
  return schedule.packed_heads == 1 ? row : row / schedule.packed_heads;
}

// Row of [query tokens * Hq], the layout of query, output and partial results. `row` counts from the tile's first.
__device__ inline std::int64_t TokenHead(const FlashArguments& arguments, const TilePlace& place, int row) {
  const TileSchedule& schedule = arguments.schedule;
  const int query_idx = QueryOfRow(schedule, place.row_begin + row);
  const int packed_head = place.row_begin + row - query_idx * schedule.packed_heads;
  return (place.sequence.query_begin + query_idx) * arguments.params.shape.query_heads +
         static_cast<int>(place.tile.head) * schedule.packed_heads + packed_head;
}

// Blocks have `tile_keys` keys.
__device__ inline TilePlace FindPlace(const FlashArguments& arguments, int tile_keys) {
  const TileSchedule& schedule = arguments.schedule;
  TilePlace place = {.tile = FindTile(schedule, arguments.params.sequences, blockIdx.x)};
  place.sequence = arguments.params.sequences[place.tile.sequence_idx];
  place.kv_head = static_cast<int>(schedule.packed_heads > 1 ? place.tile.head : place.tile.head / schedule.group_heads);
  const int num_queries = static_cast<int>(place.sequence.query_tokens);
  place.row_begin = static_cast<int>(place.tile.tile) * schedule.tile_rows;
  place.num_rows = min(num_queries * schedule.packed_heads - place.row_begin, schedule.tile_rows);
  place.query_begin = QueryOfRow(schedule, place.row_begin);
  const int query_end = QueryOfRow(schedule, place.row_begin + place.num_rows - 1) + 1;

  const BasicVisibleRange<int> visible(arguments.params.shape, num_queries, place.sequence.key_tokens);
  const BasicKeyRange<int> all = visible.OfQueries(place.query_begin, query_end);
  const BasicKeyRange<int> common = visible.OfEveryQuery(place.query_begin, query_end);
  place.block_begin = all.begin / tile_keys;
  place.num_blocks = all.size() == 0 ? 0 : (all.end + tile_keys - 1) / tile_keys - place.block_begin;
  if (schedule.key_splits > 1) {
    const std::int64_t count = place.num_blocks;
    const int first = static_cast<int>(count * place.tile.split / schedule.key_splits);
    place.num_blocks = static_cast<int>(count * (place.tile.split + 1) / schedule.key_splits) - first;
    place.block_begin += first;
  }
  place.unmasked = {(common.begin + tile_keys - 1) / tile_keys - place.block_begin, common.end / tile_keys - place.block_begin};
  return place;
}

// Where key `key_idx` of the sequence lies, in tokens of key and value.
__device__ inline std::int64_t KeyToken(const FlashArguments& arguments, const Sequence& sequence, int key_idx) {
  if (arguments.params.block_table == nullptr) return sequence.key_begin + key_idx;
  const FastDivision& page_tokens = arguments.page_tokens;
  const std::uint32_t page_idx = page_tokens.Quotient(static_cast<std::uint32_t>(key_idx));
  const std::int64_t page = arguments.params.block_table[sequence.key_begin + page_idx];
  return page * page_tokens.divisor() + (static_cast<std::uint32_t>(key_idx) - page_idx * page_tokens.divisor());
}

// The same and more in shared memory, for later: registers are for fragments.
template <int kTileRows>
struct TileFacts {
  TilePlace place;
  BasicVisibleRange<int> visible;

  // By row. Rows beyond num_rows are copies of the last one.
  std::int64_t token_head[kTileRows];  // see TokenHead
  std::int64_t lse_idx[kTileRows];     // element of log_sum_exp
  int query[kTileRows];                // counted from query_begin
  int query_head[kTileRows];

  // By all threads, at least kTileRows of them, which must be synchronised before they read.
  __device__ void Remember(const FlashArguments& arguments, const TilePlace& found) {
    const int row = static_cast<int>(threadIdx.x);
    if (row < kTileRows) RememberRow(arguments, found, min(row, found.num_rows - 1));
    if (row == 0) {
      place = found;
      visible = BasicVisibleRange<int>(arguments.params.shape, found.sequence.query_tokens, found.sequence.key_tokens);
    }
  }

 private:
  __device__ void RememberRow(const FlashArguments& arguments, const TilePlace& found, int row) {
    const AttentionParams& params = arguments.params;
    const std::int64_t query_idx = QueryOfRow(arguments.schedule, found.row_begin + row);
    token_head[threadIdx.x] = TokenHead(arguments, found, row);
    const std::int64_t head = token_head[threadIdx.x] - (found.sequence.query_begin + query_idx) * params.shape.query_heads;
    lse_idx[threadIdx.x] = found.sequence.lse_begin + head * params.lse_head_stride_elems + query_idx;
    query[threadIdx.x] = query_idx - found.query_begin;
    query_head[threadIdx.x] = static_cast<int>(head);
  }
};

}  // namespace ridgeline::kernels::attention
