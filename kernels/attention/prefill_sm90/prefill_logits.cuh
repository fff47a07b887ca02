// Products -> logits, for the options that change more than a factor: attention.h has the formula. One pass for each option
// that is on, so that those that are off cost a branch.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention/flash/logit_options.cuh"

namespace ridgeline::kernels::attention {

// `rows`: of the thread's two rows. `first_key`: of the thread's first column, in the sequence.
template <int kScores>
__device__ __forceinline__ void ProductsToLogits(float (&scores)[kScores], const LogitOptions::Row (&rows)[2], int first_key) {
#pragma unroll
  for (int i = 0; i < kScores; ++i) scores[i] *= rows[0].scale;
  if (const float cap = rows[0].cap; cap > 0) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) scores[i] = cap * tanhf(scores[i] / cap);
  }
  if (rows[0].slope != 0) {
    // Multiplied and subtracted, not fused: as the formula says it.
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int distance = abs(rows[i / 2 % 2].position - first_key - (i / 4 * 8 + i % 2));
      scores[i] = __fsub_rn(scores[i], __fmul_rn(rows[0].slope, static_cast<float>(distance)));
    }
  }
  if (rows[0].bias != nullptr) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int key = first_key + i / 4 * 8 + i % 2;
      if (key >= rows[0].key_tokens) continue;
      const float bias = rows[i / 2 % 2].bias[key];
      scores[i] = bias == -INFINITY ? -INFINITY : scores[i] + bias;
    }
  }
}

}  // namespace ridgeline::kernels::attention
