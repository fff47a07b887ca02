// Where work lies. A unit is a sequence and some KV heads that a block walks together; its length is the tiles of keys that the
// sequence's queries see. Units lie on a line, sequence by sequence, and each block gets a share of it.
//
//   unit 0         unit 1         unit 2            (a sequence, heads of one group)
//   |--------------|--------------|--------------|
//   |----- block 0 -----|----- block 1 -----|--    shares, cut without regard to units
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/decode/decode_arguments.h"
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

// The part of the line that a block works on. Places inside it, and near it, are counted from its begin and fit an int.
class Share {
 public:
  int heads_log2;   // KV heads of a unit
  int head_groups;  // units of a sequence
  int tiles = 0;    // 0: the block has no work
  std::int64_t begin;

  template <bool kHasOptions>
  __device__ __forceinline__ Share(const DecodeArguments& arguments, const Survey<kHasOptions>& survey) {
    const DecodeSchedule& schedule = arguments.schedule;
    const DecodeSchedule::Heads& chosen = Choose(schedule, survey);
    heads_log2 = chosen.heads_log2;
    head_groups = chosen.head_groups;
    const std::int64_t line = survey.tiles * head_groups;
    int num_blocks;
    if (survey.fewest == survey.most && chosen.blocks_per_group > 0 && survey.tiles <= schedule.aligned_tiles) {
      const int splits = max(1, min(chosen.blocks_per_group, survey.most >> kFewestTilesLog2));
      num_blocks = static_cast<int>(arguments.params.shape.num_sequences) * head_groups * splits;
    } else {
      num_blocks = static_cast<int>(min(std::int64_t{gridDim.x}, max(line >> kFewestTilesLog2, std::int64_t{1})));
    }
    block_ = static_cast<int>(blockIdx.x);
    if (block_ >= num_blocks || line == 0) return;
    length_ = static_cast<int>(static_cast<std::uint64_t>(line) / static_cast<unsigned>(num_blocks));
    longer_ = static_cast<int>(line - std::int64_t{length_} * num_blocks);
    begin = std::int64_t{block_} * length_ + min(block_, longer_);
    tiles = length_ + (block_ < longer_ ? 1 : 0);
  }

  // How many blocks before this one the place `distance` > 0 before its share belongs to.
  __device__ int BlocksBack(int distance) const {
    const int short_before = max(block_ - longer_, 0);  // blocks whose share is length_
    const std::int64_t beyond = distance - std::int64_t{short_before} * length_;
    const unsigned most = static_cast<unsigned>(beyond > 0 ? length_ + 1 : length_);
    const unsigned tiles = static_cast<unsigned>(beyond > 0 ? static_cast<int>(beyond) : distance);
    return (beyond > 0 ? short_before : 0) + static_cast<int>((tiles + most - 1) / most);
  }

 private:
  template <bool kHasOptions>
  __device__ __forceinline__ static const DecodeSchedule::Heads& Choose(const DecodeSchedule& schedule,
                                                                        const Survey<kHasOptions>& survey) {
    if (survey.tiles >= schedule.large_tiles) return schedule.large;
    const bool is_uneven = survey.fewest != survey.most && survey.tiles <= schedule.aligned_tiles;
    const std::int64_t parts_of_share = std::int64_t{survey.most} * static_cast<int>(gridDim.x);
    const std::int64_t share = survey.tiles * schedule.uneven.head_groups;
    return is_uneven && parts_of_share <= kMostUnevenParts * share ? schedule.uneven : schedule.apart;
  }

  // Work of fewer tiles is not worth a block of its own.
  static constexpr int kFewestTilesLog2 = 2;

  int block_;
  int length_;  // of a share, or one less
  int longer_;  // blocks whose share is length_ + 1: the first ones
};

// A unit. `begin` is its first tile's place, counted from the share's begin: negative where the unit began before.
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
  int first = 0;            // sequence of lane 0
  int source = 0;           // lane of the sequence
  std::int64_t begin = 0;   // of the lane's sequence on the line
  std::int64_t before = 0;  // tiles of one head of the sequences that were passed
#pragma unroll 1
  while (params.shape.num_sequences > 1) {
    int end = keys.tiles;  // of 32 sequences: fits an int
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(kAllLanes, end, distance);
      if (lane >= distance) end += other;
    }
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
