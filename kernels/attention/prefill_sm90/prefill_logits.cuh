// Products -> logits, for the options that change more than a factor: attention.h has the formula. One pass for each option
// that is on, so that those that are off cost a branch.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/prefill_sm90/prefill_traits.cuh"

namespace ridgeline::kernels::attention {

// `first_row`: the thread's first in the tile; its second is 8 further on. `first_key`: of its first column, in the sequence.
// Each option looks up what it needs by itself: kept from before, that would take registers which the products need.
template <int kScores>
__device__ __forceinline__ void ProductsToLogits(float (&scores)[kScores], const AttentionParams& params,
                                                 const PrefillTile& tile, int first_row, int first_key) {
#pragma unroll
  for (int i = 0; i < kScores; ++i) scores[i] *= params.scale;
  if (const float cap = params.logit_soft_cap; cap > 0) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) scores[i] = cap * tanhf(scores[i] / cap);
  }
  // Rows beyond the tile's last get its logits: their bias does not exist.
  const int last_row = tile.num_rows - 1;
  const int rows[2] = {min(first_row, last_row), min(first_row + 8, last_row)};
  if (params.alibi_slopes != nullptr) {
    // Multiplied and subtracted, not fused: as the formula says it.
    const float slope = params.alibi_slopes[tile.query_head];
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int distance = abs(tile.position + rows[i / 2 % 2] - first_key - (i / 4 * 8 + i % 2));
      scores[i] = __fsub_rn(scores[i], __fmul_rn(slope, static_cast<float>(distance)));
    }
  }
  if (params.bias != nullptr) {
    const float* const bias = params.bias + tile.sequence_idx * params.bias_sequence_stride_elems +
                              tile.query_head * params.bias_head_stride_elems +
                              (tile.row_begin + rows[0]) * params.bias_row_stride_elems + first_key;
    const std::int64_t second_row = (rows[1] - rows[0]) * params.bias_row_stride_elems;
    const int keys = tile.key_tokens - first_key;
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int key = i / 4 * 8 + i % 2;
      if (key >= keys) continue;
      const float added = bias[key + (i / 2 % 2 == 0 ? 0 : second_row)];
      scores[i] = added == -INFINITY ? -INFINITY : scores[i] + added;
    }
  }
}

}  // namespace ridgeline::kernels::attention
