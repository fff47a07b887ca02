// What the kernel reads off a launch's sequences.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/decode/decode_shape.h"
#include "kernels/attention/visible_range.h"

namespace ridgeline::kernels::attention {

inline constexpr unsigned kAllLanes = 0xffffffff;

// The keys that a sequence's queries see, [begin, end), and the tiles that hold them.
struct SequenceKeys {
  int begin;
  int end;
  int first_tile;
  int tiles;
  std::int64_t table_begin;  // in block_table; dense: in key and value
};

template <bool kHasOptions>
__device__ __forceinline__ SequenceKeys KeysOf(const AttentionParams& params, int sequence_idx) {
  const Sequence* const sequence = params.sequences + sequence_idx;
  const int query_tokens = static_cast<int>(__ldg(&sequence->query_tokens));
  const int key_tokens = static_cast<int>(__ldg(&sequence->key_tokens));
  SequenceKeys keys = {.begin = 0, .end = key_tokens, .first_tile = 0, .table_begin = __ldg(&sequence->key_begin)};
  if constexpr (kHasOptions) {
    const BasicKeyRange<int> seen =
        BasicVisibleRange<int>(params.shape, query_tokens, key_tokens).OfQueries(0, max(query_tokens, 1));
    keys.begin = seen.begin;
    keys.end = seen.end;
    keys.first_tile = static_cast<int>(static_cast<unsigned>(keys.begin) / kDecodeTileKeys);
  }
  const int end_tile = static_cast<int>((static_cast<unsigned>(keys.end) + kDecodeTileKeys - 1) / kDecodeTileKeys);
  keys.tiles = query_tokens == 0 || keys.end == keys.begin ? 0 : end_tile - keys.first_tile;
  return keys;
}

// What every warp reads off the sequences first. Until the first copies start, instructions count, see KeepFromHoisting.
template <bool kHasOptions>
struct Survey {
  std::int64_t tiles;  // of one KV head
  int fewest;
  int most;
  SequenceKeys keys = {};  // of the sequence that has the lane's number

  __device__ __forceinline__ explicit Survey(const AttentionParams& params) {
    const int num_sequences = static_cast<int>(params.shape.num_sequences);
    const int lane = static_cast<int>(threadIdx.x % 32);
    fewest = kNone;
    if (lane < num_sequences) fewest = (keys = KeysOf<kHasOptions>(params, lane)).tiles;
    most = keys.tiles;
    std::int64_t others = 0;  // of the sequences that no lane keeps
#pragma unroll 4
    for (int i = lane + 32; i < num_sequences; i += 32) {
      const int count = KeysOf<kHasOptions>(params, i).tiles;
      others += count;
      fewest = min(fewest, count);
      most = max(most, count);
    }
    tiles = __reduce_add_sync(kAllLanes, keys.tiles);  // of 32 sequences: fits an int
    if (num_sequences > 32) {
      tiles += __reduce_add_sync(kAllLanes, static_cast<unsigned>(others) & 0xffffff);
      tiles += static_cast<std::int64_t>(__reduce_add_sync(kAllLanes, static_cast<unsigned>(others >> 24))) << 24;
    }
    fewest = __reduce_min_sync(kAllLanes, fewest);
    most = __reduce_max_sync(kAllLanes, most);
  }

 private:
  static constexpr int kNone = 0x7fffffff;
};

}  // namespace ridgeline::kernels::attention
