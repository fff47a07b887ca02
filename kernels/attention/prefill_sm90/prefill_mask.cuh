// Which keys the rows of a tile see, in the layout of a thread's scores.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#include "kernels/attention/prefill_sm90/prefill_schedule.h"
#include "kernels/attention/prefill_sm90/prefill_traits.cuh"

namespace ridgeline::kernels::attention {

// Keys [begin, end) of the sequence.
struct RowKeys {
  int begin;
  int end;
};

// Of the tile's row; rows beyond the tile's see what they would if there were more queries.
__device__ __forceinline__ RowKeys KeysOfRow(const PrefillSchedule& schedule, const PrefillTile& tile, int row) {
  const int position = tile.position + row;
  return {max(position - schedule.window_left, 0), min(position + schedule.window_right + 1, tile.key_tokens)};
}

// At least one block is walked, so that there is something to finish.
template <typename Traits>
__device__ __forceinline__ GroupWalk WalkOfGroup(const PrefillSchedule& schedule, const PrefillTile& tile, int consumer) {
  constexpr int kTileKeys = Traits::kTileKeys, kFewKeys = 128;
  const int first_row = consumer * Traits::kGroupRows;
  const int last_row = min(first_row + Traits::kGroupRows, tile.num_rows) - 1;
  const RowKeys first = KeysOfRow(schedule, tile, first_row), last = KeysOfRow(schedule, tile, last_row);
  const int end = last_row < first_row ? 0 : (last.end + kTileKeys - 1) / kTileKeys;
  // No more blocks pass by than the ring holds beside those in use.
  constexpr int kMostSkipped = (Traits::kStages - 1) / 2;
  const int least_last = max(tile.first_block, tile.last_block - kMostSkipped);
  const int last_block = min(max(end - 1, least_last), tile.last_block);
  return {.last_block = last_block,
          .first_block = tile.first_block,
          .num_skipped = tile.last_block - last_block,
          .full_begin = (last.begin + kTileKeys - 1) / kTileKeys,
          .full_end = max(first.end, 0) / kTileKeys,
          .present_keys = max(tile.key_tokens - last_block * kTileKeys, 0),
          .has_few_keys = min(first.end - first.begin, last.end - last.begin) < kFewKeys ? 1 : 0};
}

// Scores of keys from end0 on in the thread's first row, end1 in its second, become -inf; the same for keys before begin0 and
// begin1. Keys are counted from the thread's first column of the block; its columns are 8i and 8i + 1.
template <int kScores>
__device__ __forceinline__ void HideLaterKeys(float (&scores)[kScores], int end0, int end1) {
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    if (i / 4 * 8 + i % 2 >= (i / 2 % 2 == 0 ? end0 : end1)) scores[i] = -INFINITY;
  }
}
template <int kScores>
__device__ __forceinline__ void HideEarlierKeys(float (&scores)[kScores], int begin0, int begin1) {
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    if (i / 4 * 8 + i % 2 < (i / 2 % 2 == 0 ? begin0 : begin1)) scores[i] = -INFINITY;
  }
}

}  // namespace ridgeline::kernels::attention
