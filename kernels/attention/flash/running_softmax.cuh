// The online softmax of one row, spread over the four lanes of a quad as mma's fragments spread it. Milakov and Gimelshein,
// "Online normalizer calculation for softmax" (2018).
#pragma once

#include <cuda_runtime.h>

#include <cmath>

namespace ridgeline::kernels::attention {

// 2^x, flushing what is below 2^-126; 2 ulp. PTX ISA, ex2.approx.ftz.f32.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// Weights are 2^(log2_scale * x - reference) for x the row's elements, log2_scale > 0. The reference is the maximum times the
// scale, as rounded: an exact number, whatever it was rounded from. Only where it is far from 0 the rounding would be large
// beside the weights' range; there weights are 2^(log2_scale * (x - maximum)).
struct RunningSoftmax {
  // Rescaling the output for every new maximum costs more than it brings: weights may be up to 2^8 before the reference
  // follows, which no 16-bit type minds. But the weight of the maximum itself is 1 only if it is the reference, and 1 is not
  // rounded: in a row of few keys, where one may outweigh the others by far, that halves the error. So it follows at once
  // there.
  static constexpr float kSlackLog2 = 8;
  static constexpr int kEagerBlocks = 2;
  static constexpr float kFarLog2 = 1 << 26;

  float maximum = -INFINITY;  // -inf: no element but -inf yet

  static __device__ bool IsFar(float maximum, float log2_scale) {
    return maximum != -INFINITY && !(fabsf(maximum * log2_scale) <= kFarLog2);
  }

  __device__ bool Outgrown(float block_maximum, float log2_scale, float slack_log2) const {
    return (block_maximum - maximum) * log2_scale > slack_log2;
  }

  // Takes a larger maximum as reference, or the same; returns what earlier weights are to be multiplied with.
  __device__ float MoveTo(float larger, float log2_scale, bool was_far, bool is_far) {
    const float before = maximum;
    maximum = larger;
    if (before == -INFINITY) return larger == -INFINITY ? 1.0f : 0.0f;
    if (was_far && is_far) return Exp2((before - larger) * log2_scale);
    if (was_far) return Exp2(fmaf(before, log2_scale, -(larger * log2_scale)));
    if (is_far) return Exp2(fmaf(-larger, log2_scale, before * log2_scale));
    return Exp2(__fsub_rn(__fmul_rn(before, log2_scale), __fmul_rn(larger, log2_scale)));
  }

  // What weights refer to, before the scale. A row of nothing but -inf gets weights of 0.
  __device__ float Reference() const { return maximum == -INFINITY ? 0.0f : maximum; }
};

// 1 / x for normal x; 1 ulp. PTX ISA, rcp.approx.ftz.f32.
__device__ __forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// A finished row.
struct RowResult {
  float output_factor;  // what to multiply its output with
  float reference;      // log-sum-exp = reference + log(total), in natural logarithms
  float total;          // 0: the reference alone

  __device__ float LogSumExp() const { return total == 0 ? reference : reference + logf(total); }
};

// `sum` is the whole row's, 0 or at least 1; `logit_scale` turns its maximum into a logit. `sink_logit` is -inf where there is
// none.
__device__ inline RowResult FinishRow(float maximum, float sum, float logit_scale, float sink_logit) {
  if (sum == 0) return {0.0f, sink_logit, 0.0f};  // no key but hidden ones
  const float logit = maximum * logit_scale;
  if (sink_logit == -INFINITY) return {Reciprocal(sum), logit, sum};
  if (!(sink_logit > logit)) {
    const float total = sum + expf(sink_logit - logit);
    return {Reciprocal(total), logit, total};
  }
  // Counted from the larger one: the smaller may be beyond float's exponents.
  const float factor = expf(logit - sink_logit);
  const float total = sum * factor + 1.0f;
  return {factor * Reciprocal(total), sink_logit, total};
}

}  // namespace ridgeline::kernels::attention
