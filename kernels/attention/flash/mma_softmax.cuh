// The online softmax of a warp's rows, of which each lane holds some columns, as mma's fragments spread them.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#include "kernels/attention/flash/running_softmax.cuh"

namespace ridgeline::kernels::attention {

template <typename Traits>
class MmaSoftmax {
  using Scores = typename Traits::Scores;
  using Output = typename Traits::Output;
  static constexpr int kRowMmas = Traits::kRowMmas;

 public:
  // Logits are scores * log2_scale / log2(e).
  __device__ explicit MmaSoftmax(float log2_scale) : log2_scale_(log2_scale) {}

  // Scores of the step-th block become weights, in place; `output` is what earlier weights made, and follows where a row's
  // reference moves.
  __device__ __forceinline__ void Weigh(Scores& scores, int step, Output& output) {
    RaiseReferences(scores, step, output);
    Exponentiate(scores);
  }

  // After the last block: the four lanes of a row add up their columns.
  __device__ __forceinline__ void SumOverLanes() {
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
#pragma unroll
      for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          weight_sum_[i][half] += __shfl_xor_sync(0xffffffff, weight_sum_[i][half], distance);
        }
      }
    }
  }

  // Of row `half` of fragment `mma`: the largest score (-inf: none), and the sum of the weights.
  __device__ float maximum(int mma, int half) const { return rows_[mma][half].maximum; }
  __device__ float sum(int mma, int half) const { return weight_sum_[mma][half]; }

 private:
  // Sees to it that no weight of these scores will be too large.
  __device__ __forceinline__ void RaiseReferences(Scores& scores, int step, Output& output) {
    // Of this lane's columns. Rows side by side: a row's own maximum is a chain in which every instruction waits for the one
    // before.
    float maximum[kRowMmas][2];
#pragma unroll
    for (int n = 0; n < Traits::kKeyMmas; ++n) {
#pragma unroll
      for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float pair = fmaxf(scores[i][n][2 * half], scores[i][n][2 * half + 1]);
          maximum[i][half] = n == 0 ? pair : fmaxf(maximum[i][half], pair);
        }
      }
    }
    const float slack_log2 = step < RunningSoftmax::kEagerBlocks ? 0 : RunningSoftmax::kSlackLog2;
    bool outgrown = is_far_;
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) outgrown |= rows_[i][half].Outgrown(maximum[i][half], log2_scale_, slack_log2);
    }
    // Most blocks end here: which lane outgrew its row's reference matters to none.
    if (!__any_sync(0xffffffff, outgrown)) return;
    MoveReferences(maximum, output);
    if (is_far_) SubtractReferences(scores);
  }

  // Takes the rows' maxima as references, where they are larger, and turns output and sums to them. `maximum`: of this lane's
  // columns.
  __device__ __forceinline__ void MoveReferences(float (&maximum)[kRowMmas][2], Output& output) {
    bool is_far = false;
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int distance = 1; distance < 4; distance *= 2) {
          maximum[i][half] = fmaxf(maximum[i][half], __shfl_xor_sync(0xffffffff, maximum[i][half], distance));
        }
        maximum[i][half] = fmaxf(maximum[i][half], rows_[i][half].maximum);
        is_far |= RunningSoftmax::IsFar(maximum[i][half], log2_scale_);
      }
    }
    is_far = __any_sync(0xffffffff, is_far);
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float factor = rows_[i][half].MoveTo(maximum[i][half], log2_scale_, is_far_, is_far);
        weight_sum_[i][half] *= factor;
#pragma unroll
        for (int d = 0; d < Traits::kOutputMmas; ++d) {
          output[i][d][2 * half] *= factor;
          output[i][d][2 * half + 1] *= factor;
        }
      }
    }
    is_far_ = is_far;
  }

  // Where references are so far from 0 that their product with the scale would be rounded too coarsely: scores become
  // distances.
  __device__ __forceinline__ void SubtractReferences(Scores& scores) const {
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int n = 0; n < Traits::kKeyMmas; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) scores[i][n][j] -= rows_[i][j / 2].Reference();
      }
    }
  }

  __device__ __forceinline__ void Exponentiate(Scores& scores) {
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float log2_reference = is_far_ ? 0.0f : rows_[i][half].Reference() * log2_scale_;
#pragma unroll
        for (int n = 0; n < Traits::kKeyMmas; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            float& score = scores[i][n][2 * half + j];
            score = Exp2(fmaf(score, log2_scale_, -log2_reference));
            weight_sum_[i][half] += score;
          }
        }
      }
    }
  }

  const float log2_scale_;
  RunningSoftmax rows_[kRowMmas][2];
  bool is_far_ = false;                 // of all rows of the warp: some reference is far from 0
  float weight_sum_[kRowMmas][2] = {};  // of this lane's columns
};

}  // namespace ridgeline::kernels::attention
