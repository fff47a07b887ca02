// How the work is divided. A unit is a sequence and some KV heads that a block walks together; its length is the tiles of keys
// that the sequence's queries see. Units lie on a line, sequence by sequence, and each block gets a share of it.
//
//   unit 0         unit 1         unit 2            (a sequence, heads of one group)
//   |--------------|--------------|--------------|
//   |----- block 0 -----|----- block 1 -----|--    shares, cut without regard to units
//   |- block 0 -|- 1 -|---- 2 ----|- 3 -|- 4 -|    or each unit by itself: decode_unit_cut.cuh
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/decode/decode_arguments.h"
#include "kernels/attention/decode/decode_sequences.cuh"
#include "kernels/attention/decode/decode_unit_cut.cuh"

namespace ridgeline::kernels::attention {

// The part of the line that a block works on. Places inside it, and near it, are counted from its begin and fit an int.
class Share {
 public:
  int heads_log2;   // KV heads of a unit
  int head_groups;  // units of a sequence
  int tiles = 0;    // 0: the block has no work
  // Where it begins: on the line, or from the begin of this sequence's units on, if that is not negative.
  std::int64_t begin;
  int sequence_idx = -1;

  template <bool kHasOptions>
  __device__ __forceinline__ Share(const DecodeArguments& arguments, const Survey<kHasOptions>& survey) {
    const DecodeSchedule& schedule = arguments.schedule;
    const DecodeSchedule::Heads& chosen = Choose(schedule, survey);
    heads_log2 = chosen.heads_log2;
    head_groups = chosen.head_groups;
    const bool is_short = survey.tiles <= schedule.aligned_tiles;
    UnitPart unit = {.parts = 0};
    if (is_short && survey.fewest != survey.most && arguments.params.shape.num_sequences <= 32) {
      unit = CutUnits(survey.keys.tiles, static_cast<int>(survey.tiles), head_groups);
    }
    std::int64_t line = survey.tiles * head_groups;
    int num_parts;
    block_ = static_cast<int>(blockIdx.x);
    begin = 0;
    if (unit.parts > 0) {
      line = unit.tiles;
      num_parts = unit.parts;
      block_ = unit.part;
      sequence_idx = unit.sequence_idx;
      begin = std::int64_t{unit.head_group} * unit.tiles;
    } else if (is_short && survey.fewest == survey.most && chosen.blocks_per_group > 0) {
      const int splits = max(1, min(chosen.blocks_per_group, survey.most >> kFewestTilesLog2));
      num_parts = static_cast<int>(arguments.params.shape.num_sequences) * head_groups * splits;
    } else {
      num_parts = static_cast<int>(min(std::int64_t{gridDim.x}, max(line >> kFewestTilesLog2, std::int64_t{1})));
    }
    if (block_ >= num_parts || line == 0) return;
    length_ = static_cast<int>(static_cast<std::uint64_t>(line) / static_cast<unsigned>(num_parts));
    longer_ = static_cast<int>(line - std::int64_t{length_} * num_parts);
    begin += std::int64_t{block_} * length_ + min(block_, longer_);
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

  int block_;   // of those among which the line, or the unit, is divided
  int length_;  // of a share, or one less
  int longer_;  // blocks whose share is length_ + 1: the first ones
};

}  // namespace ridgeline::kernels::attention
