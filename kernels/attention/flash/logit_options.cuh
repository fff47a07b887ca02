// Products -> logits, for the options that change more than a factor: attention.h has the formula.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention/attention.h"

namespace ridgeline::kernels::attention {

class LogitOptions {
 public:
  // The logits of one row. `key_idx` may lie beyond the sequence: then the logit is any number, to be masked.
  struct Row {
    float scale;
    float cap;          // 0: none
    float slope;        // 0: no ALiBi
    int position;       // of the query among the keys
    const float* bias;  // [key tokens] or null
    int key_tokens;

    __device__ float Of(float product, int key_idx) const {
      float logit = product * scale;
      if (cap > 0) logit = cap * tanhf(logit / cap);
      // Multiplied and subtracted, not fused: as the formula says it.
      if (slope != 0) logit = __fsub_rn(logit, __fmul_rn(slope, static_cast<float>(abs(position - key_idx))));
      if (bias == nullptr || key_idx >= key_tokens) return logit;
      return bias[key_idx] == -INFINITY ? -INFINITY : logit + bias[key_idx];
    }

    // Whether the bias hides the key, whatever its product.
    __device__ bool Hides(int key_idx) const { return bias != nullptr && bias[key_idx] == -INFINITY; }
  };

  __device__ LogitOptions(const AttentionParams& params, std::int64_t sequence_idx)
      : params_(params),
        bias_(params.bias == nullptr ? nullptr : params.bias + sequence_idx * params.bias_sequence_stride_elems) {}

  __device__ Row OfRow(std::int64_t query_head, int query_idx, int position, int key_tokens) const {
    return {.scale = params_.scale,
            .cap = params_.logit_soft_cap,
            .slope = params_.alibi_slopes == nullptr ? 0.0f : params_.alibi_slopes[query_head],
            .position = position,
            .bias = bias_ == nullptr
                        ? nullptr
                        : bias_ + query_head * params_.bias_head_stride_elems + query_idx * params_.bias_row_stride_elems,
            .key_tokens = key_tokens};
  }

 private:
  const AttentionParams& params_;
  const float* bias_;  // the sequence's
};

}  // namespace ridgeline::kernels::attention
