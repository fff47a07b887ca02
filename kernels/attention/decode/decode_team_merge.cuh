// The warps of a team have each seen some tiles of one unit: shared memory brings their rows together.
//
//   warp: frag O, max, sum ──► smem [warp][row] ──one warp a row──► output, or the workspace if the unit is cut
#pragma once

#include <cuda_runtime.h>

#include "kernels/attention/decode/decode_rows.cuh"
#include "kernels/attention/decode/decode_tile.cuh"
#include "kernels/common/named_barrier.cuh"

namespace ridgeline::kernels::attention {

template <typename Traits>
class TeamMerge {
 public:
  // `outputs` [warps of the block][rows, even][kMergePitch] and `stats` [warps][kRows] are shared memory. The team's warps are
  // those from first_warp on.
  __device__ TeamMerge(float* outputs, float2* stats, int rows, int first_warp, int team_warps, int barrier)
      : rows_(rows),
        warp_in_team_(Traits::warp() - first_warp),
        team_warps_(team_warps),
        barrier_(barrier),
        outputs_(outputs + first_warp * rows * Traits::kMergePitch),
        stats_(stats + first_warp * Traits::kRows) {}

  // By all warps of the team, which merged a unit before unless it is their first. Then each has some of the unit's rows: hands
  // them to store(row_idx, OutputRow).
  template <typename Store>
  __device__ __forceinline__ void Run(TileSoftmax<Traits>& softmax, int num_rows, float log2_scale, bool is_first,
                                      Store store) const {
    softmax.ReduceSums();
    if (!is_first) Sync();  // the rows of the unit before have been read
    WriteRows(softmax, num_rows);
    Sync();
#pragma unroll 1
    for (int row = warp_in_team_; row < num_rows; row += team_warps_) store(row, MergeRow(row, log2_scale));
  }

 private:
  __device__ void Sync() const {
    if (team_warps_ == 1) {
      __syncwarp();
    } else {
      NamedBarrierSync(barrier_, team_warps_ * 32);
    }
  }

  __device__ __forceinline__ void WriteRows(const TileSoftmax<Traits>& softmax, int num_rows) const {
    const int lane = Traits::lane();
    float* const outputs = outputs_ + warp_in_team_ * rows_ * Traits::kMergePitch + lane / 4;
#pragma unroll
    for (int n = 0; n < Traits::kRowMmas; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int row = 8 * n + 2 * (lane % 4) + j;
        if (row >= num_rows) continue;
        if (lane < 4) stats_[warp_in_team_ * Traits::kRows + row] = {softmax.maximum(n, j), softmax.sum(n, j)};
#pragma unroll
        for (int i = 0; i < Traits::kDimSteps; ++i) {
          outputs[row * Traits::kMergePitch + 16 * i] = softmax.output(i, n, j, 0);
          outputs[row * Traits::kMergePitch + 16 * i + 8] = softmax.output(i, n, j, 1);
        }
      }
    }
  }

  __device__ __forceinline__ OutputRow<Traits> MergeRow(int row, float log2_scale) const {
    // Lane i has the (maximum, sum) of the team's warp i, as have those kMaxWarps further on.
    const int warp = Traits::lane() % Traits::kMaxWarps;
    float4 parts[Traits::kMaxWarps][Traits::kPieces];
#pragma unroll
    for (int i = 0; i < Traits::kMaxWarps; ++i) {
#pragma unroll
      for (int p = 0; p < Traits::kPieces; ++p) {
        parts[i][p] = {0, 0, 0, 0};
        if (i >= team_warps_ || !OutputRow<Traits>::HasColumn(p)) continue;
        parts[i][p] =
            *reinterpret_cast<const float4*>(outputs_ + (i * rows_ + row) * Traits::kMergePitch + OutputRow<Traits>::Column(p));
      }
    }
    const float2 stats = warp < team_warps_ ? stats_[warp * Traits::kRows + row] : float2{-INFINITY, 0.0f};
    OutputRow<Traits> merged;
    merged.maximum = stats.x;
#pragma unroll
    for (int distance = Traits::kMaxWarps / 2; distance > 0; distance /= 2) {
      merged.maximum = fmaxf(merged.maximum, __shfl_xor_sync(kAllLanes, merged.maximum, distance));
    }
    const float factor = Exp2((stats.x - ReferenceOf(merged.maximum)) * log2_scale);
    merged.sum = factor * stats.y;
#pragma unroll
    for (int distance = Traits::kMaxWarps / 2; distance > 0; distance /= 2) {
      merged.sum += __shfl_xor_sync(kAllLanes, merged.sum, distance);
    }
#pragma unroll
    for (int i = 0; i < Traits::kMaxWarps; ++i) {
      const float part_factor = __shfl_sync(kAllLanes, factor, i);
#pragma unroll
      for (int p = 0; p < Traits::kPieces; ++p) merged.Add(p, part_factor, parts[i][p]);
    }
    return merged;
  }

  const int rows_;  // of the buffer, even
  const int warp_in_team_;
  const int team_warps_;
  const int barrier_;
  float* const outputs_;  // the team's
  float2* const stats_;   // the team's
};

}  // namespace ridgeline::kernels::attention
