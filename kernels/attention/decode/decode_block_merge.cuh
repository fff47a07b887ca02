// A unit that is cut over blocks: each leaves its part in the workspace, and the block with the unit's last tile sums them, in
// order, so that equal launches give equal bytes.
//
// Words of the workspace are all ones where nothing was written yet, so the data are their own flags: no fence, no counter.
// Whoever reads a part puts the ones back. A block waits only once its own work is done, and only for blocks with lower
// numbers, which were dispatched before it and wait for none above them: whatever else runs on the device, the lowest one that
// is not done can go on.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/decode/decode_rows.cuh"
#include "kernels/attention/decode/decode_walk.cuh"
#include "kernels/common/relaxed_access.cuh"

namespace ridgeline::kernels::attention {

inline constexpr std::uint32_t kEmptyWord = 0xffffffff;

// A NaN may have every bit set; no part may look empty for ever.
__device__ __forceinline__ std::uint32_t Seal(float value) {
  const std::uint32_t word = __float_as_uint(value);
  return word == kEmptyWord ? 0x7fffffff : word;
}

// The workspace: each block has room for two parts, 0 for the unit in which its share begins, 1 for the one in
// which it ends.
//   [2 * blocks, heads, rows, kPartPitch]: a row's columns, then (maximum, sum)
template <typename Traits>
class PartialRows {
 public:
  __device__ PartialRows(const DecodeArguments& arguments, int heads, int team)
      : rows_(arguments.schedule.rows),
        heads_(heads),
        team_(team),
        parts_(static_cast<float*>(arguments.params.merge_workspace)) {}

  // Slots are 0 and 1.
  __device__ __forceinline__ float* RowOf(int block, int slot, int row) const {
    return parts_ + (((2 * block + slot) * heads_ + team_) * rows_ + row) * Traits::kPartPitch;
  }

  // Floats from a row in slot 0 to the same row of slot 1, and from a block to the next.
  __device__ int SlotStride() const { return heads_ * rows_ * Traits::kPartPitch; }
  __device__ int BlockStride() const { return 2 * SlotStride(); }

  // In a slot of this block.
  __device__ __forceinline__ void Leave(int slot, int row, const OutputRow<Traits>& output) const {
    float* const to = RowOf(static_cast<int>(blockIdx.x), slot, row);
#pragma unroll
    for (int p = 0; p < Traits::kPieces; ++p) {
      if (!OutputRow<Traits>::HasColumn(p)) continue;
      const float(&columns)[4] = output.columns[p];
      StoreRelaxed16(to + OutputRow<Traits>::Column(p),
                     {Seal(columns[0]), Seal(columns[1]), Seal(columns[2]), Seal(columns[3])});
    }
    if (Traits::lane() == 0) {
      StoreRelaxed8(to + Traits::kHeadDim, {Seal(output.maximum), Seal(output.sum)});
    }
  }

 private:
  const int rows_;
  const int heads_;
  const int team_;
  float* const parts_;
};

// Sums rows of the parts of blocks [first_block, first_block + num_parts). A block's part of a unit is in its slot 0, but of
// the unit that begins in its share in slot 1: of these blocks, that is the first one's. By one warp.
template <typename Traits>
class BlockMerge {
 public:
  __device__ BlockMerge(const PartialRows<Traits>& partial, int first_block, int num_parts, float log2_scale)
      : partial_(partial), first_block_(first_block), num_parts_(num_parts), log2_scale_(log2_scale) {}

  __device__ __forceinline__ OutputRow<Traits> Sum(int row) const {
    OutputRow<Traits> merged;
#pragma unroll 1
    for (int first = 0; first < num_parts_; first += kAtOnce) AddParts(merged, row, first);
    return merged;
  }

  // Leaves the row's parts empty.
  __device__ __forceinline__ void Clear(int row) const {
    float* part = PartOf(0, row) + OutputRow<Traits>::Column(0);
#pragma unroll 1
    for (int i = 0; i < num_parts_; ++i, part += partial_.BlockStride()) {
      float* const output = part + (i == 0 ? partial_.SlotStride() : 0);
#pragma unroll
      for (int p = 0; p < Traits::kPieces; ++p) {
        if (OutputRow<Traits>::HasColumn(p)) StoreRelaxed16(output + 128 * p, {kEmptyWord, kEmptyWord, kEmptyWord, kEmptyWord});
      }
    }
  }

 private:
  static constexpr int kAtOnce = 16 / Traits::kPieces;

  // In slot 0.
  __device__ float* PartOf(int part, int row) const { return partial_.RowOf(first_block_ + part, 0, row); }

  // Adds parts first to first + kAtOnce - 1.
  __device__ __forceinline__ void AddParts(OutputRow<Traits>& merged, int row, int first) const {
    const int count = min(kAtOnce, num_parts_ - first);
    uint4 words[kAtOnce][Traits::kPieces];
    const float2 stats = Await(words, row, first, count);
    const float before = merged.maximum;
    merged.maximum = fmaxf(stats.x, before);
#pragma unroll
    for (int distance = kAtOnce / 2; distance > 0; distance /= 2) {
      merged.maximum = fmaxf(merged.maximum, __shfl_xor_sync(kAllLanes, merged.maximum, distance));
    }
    merged.maximum = __shfl_sync(kAllLanes, merged.maximum, 0);
    const float factor_before = Exp2((before - ReferenceOf(merged.maximum)) * log2_scale_);
    const float factor = Exp2((stats.x - ReferenceOf(merged.maximum)) * log2_scale_);
    float sum = factor * stats.y;
#pragma unroll
    for (int distance = kAtOnce / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(kAllLanes, sum, distance);
    merged.sum = merged.sum * factor_before + __shfl_sync(kAllLanes, sum, 0);
#pragma unroll
    for (int p = 0; p < Traits::kPieces; ++p) {
#pragma unroll
      for (int j = 0; j < 4; ++j) merged.columns[p][j] *= factor_before;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float part_factor = __shfl_sync(kAllLanes, factor, i);
#pragma unroll
      for (int p = 0; p < Traits::kPieces; ++p) {
        const uint4& word = words[i][p];
        merged.Add(p, part_factor,
                   {__uint_as_float(word.x), __uint_as_float(word.y), __uint_as_float(word.z), __uint_as_float(word.w)});
      }
    }
  }

  // Polls until `count` parts from `first` on have arrived; those beyond are zeros. Lane i gets the (maximum, sum) of part
  // first + i, which is empty afterwards.
  __device__ __forceinline__ float2 Await(uint4 (&words)[kAtOnce][Traits::kPieces], int row, int first, int count) const {
    const int lane = Traits::lane();
    float* const stats_at = PartOf(first + lane, row) + (first + lane == 0 ? partial_.SlotStride() : 0) + Traits::kHeadDim;
    const float* const begin = PartOf(first, row) + OutputRow<Traits>::Column(0);
    uint2 stats = {__float_as_uint(-INFINITY), 0};
    std::uint32_t largest;
    do {
      if (lane < count) stats = LoadRelaxed8(stats_at);
      largest = max(stats.x, stats.y);
      const float* part = begin;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i, part += partial_.BlockStride()) {
        const float* const output = i == 0 && first == 0 ? part + partial_.SlotStride() : part;
#pragma unroll
        for (int p = 0; p < Traits::kPieces; ++p) {
          words[i][p] = {0, 0, 0, 0};
          if (i < count && OutputRow<Traits>::HasColumn(p)) words[i][p] = LoadRelaxed16(output + 128 * p);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int p = 0; p < Traits::kPieces; ++p) {
          const uint4& word = words[i][p];
          largest = max(largest, max(max(word.x, word.y), max(word.z, word.w)));
        }
      }
    } while (__any_sync(kAllLanes, largest == kEmptyWord));
    if (lane < count) StoreRelaxed8(stats_at, {kEmptyWord, kEmptyWord});
    return {__uint_as_float(stats.x), __uint_as_float(stats.y)};
  }

  const PartialRows<Traits>& partial_;
  const int first_block_;
  const int num_parts_;
  const float log2_scale_;
};

}  // namespace ridgeline::kernels::attention
