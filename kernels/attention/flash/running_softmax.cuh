// The online softmax of one row, spread over the four lanes of a quad as mma's fragments spread it: the maximum is the quad's,
// the sum the lane's own part until Finish. Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
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

__device__ __forceinline__ float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

__device__ __forceinline__ float QuadSum(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// Weights are 2^(log2_scale * (x - maximum)) for x the row's elements. log2_scale > 0.
struct RunningSoftmax {
  // Rescaling the output for every new maximum costs more than it brings: weights may be up to 2^8 before the reference
  // follows, which no 16-bit type minds.
  static constexpr float kSlackLog2 = 8;

  float maximum = -INFINITY;  // what the weights refer to; -inf: no element but -inf yet
  float sum = 0;              // of this lane's weights

  __device__ bool Outgrown(float block_maximum, float log2_scale) const {
    return (block_maximum - maximum) * log2_scale > kSlackLog2;
  }

  // Refers to the larger maximum from now on; returns what earlier weights are to be multiplied with.
  __device__ float Grow(float block_maximum, float log2_scale) {
    const float larger = fmaxf(maximum, block_maximum);
    // Two -inf have no difference; nothing has been summed up then.
    const float factor = larger == -INFINITY ? 1.0f : Exp2((maximum - larger) * log2_scale);
    maximum = larger;
    sum *= factor;
    return factor;
  }

  // What is to be subtracted from log2_scale * x. A row of nothing but -inf gets weights of 0.
  __device__ float Log2Reference(float log2_scale) const { return maximum == -INFINITY ? 0.0f : maximum * log2_scale; }
};

// A finished row: what to multiply its output with, and its log-sum-exp in natural logarithms.
struct RowResult {
  float output_factor;
  float log_sum_exp;
};

// `sum` is the whole row's, `logit_scale` turns its maximum into a logit. `sink_logit` is -inf where there is none.
__device__ inline RowResult FinishRow(float maximum, float sum, float logit_scale, float sink_logit) {
  if (sum == 0) return {0.0f, sink_logit};  // no key but hidden ones
  const float logit = maximum * logit_scale;
  // exp may be beyond float's range if the sink is the larger one by far; the output is 0 then.
  if (sink_logit != -INFINITY) sum += expf(sink_logit - logit);
  const float log_sum_exp = isinf(sum) ? sink_logit : logit + logf(sum);
  return {1.0f / sum, log_sum_exp};
}

}  // namespace ridgeline::kernels::attention
