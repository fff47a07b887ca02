// Decode attention: few query rows a KV head, keys and values read once at the speed of memory. README.md explains the
// schedule.
//
//   gmem pages ──cp.async──► smem ring of each warp ──ldmatrix──► mma, softmax, mma: frag O
//                                                                        │ end of a unit
//                       output ◄── one block ◄── workspace ◄── smem ◄────┘
//                                  (where a unit is cut)       (warps of a team)
//
//   A block's warps form teams, one for each KV head that the block walks. Tiles of 16 keys go round-robin to a team's warps,
//   each of which has a ring of its own: no barrier in the loop.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/decode/decode_arguments.h"
#include "kernels/attention/decode/decode_block_merge.cuh"
#include "kernels/attention/decode/decode_cache.cuh"
#include "kernels/attention/decode/decode_load.cuh"
#include "kernels/attention/decode/decode_rows.cuh"
#include "kernels/attention/decode/decode_team_merge.cuh"
#include "kernels/attention/decode/decode_tile.cuh"
#include "kernels/attention/decode/decode_traits.cuh"
#include "kernels/attention/decode/decode_walk.cuh"
#include "kernels/common/cp_async.cuh"
#include "kernels/common/shared_memory.cuh"

namespace ridgeline::kernels::attention {

// A block's dynamic shared memory after the rings, [num_warps][kStages][kSlotBytes].
template <typename Traits>
struct DecodeShared {
  float* outputs;  // [num_warps][rows, even][kMergePitch]
  float2* stats;   // [num_warps][kRows]

  __device__ DecodeShared(char* memory, int num_warps, int rows)
      : outputs(reinterpret_cast<float*>(memory + num_warps * Traits::kRingBytes)),
        stats(reinterpret_cast<float2*>(outputs + num_warps * rows * Traits::kMergePitch)) {}
};

template <typename Traits>
class DecodeBlock {
 public:
  __device__ __forceinline__ DecodeBlock(const DecodeArguments& arguments, const Share& share, const Unit& first, char* memory)
      : arguments_(arguments),
        share_(share),
        first_(first),
        team_warps_log2_(arguments.schedule.warps_log2 - share.heads_log2),
        memory_(memory),
        unit_(first) {}

  __device__ void Run(const TileCachePolicy& policy) {
    const std::uint32_t ring = SharedAddress(memory_) + Traits::warp() * Traits::kRingBytes;
    TileLoader<Traits> loader(arguments_, share_, first_, team(), warp_in_team(), team_warps(), ring, policy);
    place_ = warp_in_team();
    std::uint32_t slot = Traits::kRingBytes - Traits::kSlotBytes;
    // Each turn but the first starts the copy of one tile and, once the ring has filled, computes with the oldest. The turn
    // before begins a unit: its queries are there sooner if not the whole ring was asked for before them.
#pragma unroll 1
    for (int turn = 0;; ++turn) {
      loader.LoadNext(slot);
      CpAsyncCommit();
      slot = slot + Traits::kSlotBytes == Traits::kRingBytes ? 0 : slot + Traits::kSlotBytes;
      if (turn < Traits::kStages - 1) continue;
      if (!MoveToTile()) break;
      if (turn < Traits::kStages) continue;
      CpAsyncWait<Traits::kStages - 1>();
      __syncwarp();
      softmax_.Add(ring + slot, unit_.KeyAt(place_));
      place_ += team_warps();
      __syncwarp();  // the slot is free
    }
    MergeFirstUnit();
  }

 private:
  // A team is the warps of one KV head of the group.
  __device__ int team() const { return Traits::warp() >> team_warps_log2_; }
  __device__ int team_warps() const { return 1 << team_warps_log2_; }
  __device__ int warp_in_team() const { return Traits::warp() & (team_warps() - 1); }

  __device__ int EvenRows() const { return (arguments_.schedule.rows + 1) & ~1; }
  __device__ PackedRows RowsOf(const Unit& unit) const {
    return PackedRows(arguments_, unit.sequence_idx, (unit.head_group << share_.heads_log2) + team());
  }
  __device__ float log2_scale() const { return Log2Scale<Traits>(arguments_.params); }

  // Begins and ends units until the warp's next tile is one of the unit's. False: the share is done.
  __device__ __forceinline__ bool MoveToTile() {
#pragma unroll 1
    for (;;) {
      const int end = min(unit_.end(), share_.tiles);
      if (is_new_) softmax_.Begin(arguments_, unit_, RowsOf(unit_));
      is_new_ = false;
      if (place_ < end) return true;
      EndUnit();
      if (end == share_.tiles) return false;
      MoveToNext<Traits::kHasOptions>(unit_, arguments_.params, share_);
      is_new_ = true;
    }
  }

  // Stores the unit's rows, or leaves them for the block that has its last tile.
  __device__ __forceinline__ void EndUnit() {
    const bool is_whole = unit_.begin >= 0 && unit_.end() <= share_.tiles;
    int heads = 1 << share_.heads_log2, even_rows = EvenRows();
    KeepFromHoisting(heads);
    KeepFromHoisting(even_rows);
    const PackedRows rows = RowsOf(unit_);
    const PartialRows<Traits> partial(arguments_, heads, team());
    const DecodeShared<Traits> shared(memory_, 1 << arguments_.schedule.warps_log2, even_rows);
    const TeamMerge<Traits> merge(shared.outputs, shared.stats, even_rows, team() << team_warps_log2_, team_warps(),
                                  1 + team());
    merge.Run(softmax_, rows.size(), log2_scale(), !has_ended_unit_, [&](int row, const OutputRow<Traits>& output) {
      if (is_whole) {
        RowDestination<Traits>(arguments_, rows, row).Store(output);
      } else {
        partial.Leave(unit_.begin >= 0 ? 1 : 0, row, output);
      }
    });
    has_ended_unit_ = true;
  }

  // If the share has the last tile, but not the first, of the unit in which it begins.
  __device__ __forceinline__ void MergeFirstUnit() const {
    if (first_.begin >= 0 || first_.end() > share_.tiles) return;
    const int blocks_back = share_.BlocksBack(-first_.begin);
    const PackedRows rows = RowsOf(first_);
    const PartialRows<Traits> partial(arguments_, 1 << share_.heads_log2, team());
    const BlockMerge<Traits> merge(partial, static_cast<int>(blockIdx.x) - blocks_back, blocks_back + 1, log2_scale());
#pragma unroll 1
    for (int row = warp_in_team(); row < rows.size(); row += team_warps()) {
      const RowDestination<Traits> destination(arguments_, rows, row);
      destination.Store(merge.Sum(row));
      merge.Clear(row);
    }
  }

  const DecodeArguments& arguments_;
  const Share& share_;
  const Unit first_;
  const int team_warps_log2_;
  char* const memory_;  // see DecodeShared
  TileSoftmax<Traits> softmax_;
  Unit unit_;  // of the tile that is computed next
  bool is_new_ = true;
  bool has_ended_unit_ = false;
  int place_ = 0;  // of the tile that is computed next, in the share
};

// Rows of sequences of which no key is seen: output 0, and the sink's logit. Blocks take turns.
template <typename Traits>
__device__ void StoreEmptyRows(const DecodeArguments& arguments) {
  const int kv_heads = static_cast<int>(arguments.params.shape.kv_heads);
  for (int i = static_cast<int>(blockIdx.x); i < arguments.params.shape.num_sequences; i += static_cast<int>(gridDim.x)) {
    if (KeysOf<Traits::kHasOptions>(arguments.params, i).tiles > 0) continue;
    for (int head = Traits::warp(); head < kv_heads; head += static_cast<int>(blockDim.x / 32)) {
      const PackedRows rows(arguments, i, head);
      for (int row = 0; row < rows.size(); ++row) RowDestination<Traits>(arguments, rows, row).Store(OutputRow<Traits>());
    }
  }
}

template <typename Traits>
__global__ void __launch_bounds__(32 * Traits::kMaxWarps, 1) DecodeKernel(const __grid_constant__ DecodeArguments arguments) {
  extern __shared__ __align__(1024) char memory[];
  const Survey<Traits::kHasOptions> survey(arguments.params);
  const Share share(arguments, survey);
  if (share.tiles > 0) {
    const Unit first = FindUnit(arguments.params, survey, share);
    DecodeBlock<Traits>(arguments, share, first, memory).Run(TileCachePolicy(survey.tiles, arguments.schedule));
  }
  if (survey.fewest == 0) StoreEmptyRows<Traits>(arguments);
}

}  // namespace ridgeline::kernels::attention
