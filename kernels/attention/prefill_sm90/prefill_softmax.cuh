// The softmax of a thread's two rows without a maximum: a block's weights refer to what the blocks before it referred to, and
// their sums, which are needed anyway, tell whether that was good enough. If not, the block is done again with its maximum.
//
// Exact: weights and sum have the same reference, whichever it is, and as long as no weight leaves the range of its type at the
// upper end, and the sum is not so small that weights that matter leave it at the lower end, a weight is as precise as any
// other. README.md, "A softmax without a maximum", proves the bounds.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention/flash/running_softmax.cuh"
#include "kernels/common/float16.cuh"

namespace ridgeline::kernels::attention {

// A row begins with the reference kFirstReference (in powers of two), which stands if the sum of its first block is in
// [kLeastFirstSum, kMostSum]; later blocks are good if no thread's part of their sum is above kMostSum.
template <typename T>
struct WeightRange;

// bfloat16 has the exponents of float32: weights may be far from 1 on either side.
template <>
struct WeightRange<__nv_bfloat16> {
  static constexpr float kFirstReference = 0;
  static constexpr float kLeastFirstSum = 0x1p-30f;
  static constexpr float kMostSum = 0x1p30f;
};

// float16 ends at 65504, and below 2^-14 it has fewer bits: what is lost there is at most 2^-25 a key, no more than standard
// attention loses of probabilities, if the sum is at least 1. Starting from 2^6 leaves room on both sides of a logit of 0.
template <>
struct WeightRange<__half> {
  static constexpr float kFirstReference = -6;
  static constexpr float kLeastFirstSum = 1;
  static constexpr float kMostSum = 65504;
};

// What a thread's two rows have come to.
struct SoftmaxRows {
  float maximum[2];  // what weights refer to, before the scale
  float sum[2];      // of the thread's columns

  // Of a whole row, by its four lanes together.
  __device__ __forceinline__ float WholeSum(int half) const {
    float x = sum[half];
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
  }
};

// Scores of one warp's 16 rows and kKeys keys, as wgmma leaves them: of each four, two are of the thread's first row. kEarly of
// a thread's weights can be computed before the others.
template <typename T, int kKeys, int kEarly>
class SpeculativeSoftmax {
  static constexpr unsigned kAllLanes = 0xffffffff;
  using Range = WeightRange<T>;

 public:
  using Scores = float[kKeys / 2];
  using Weights = std::uint32_t[kKeys / 4];  // pairs, as wgmma takes them

  // The thread's part of its two rows' sums, of even and of odd columns.
  struct PartialSums {
    float even[2], odd[2];
    __device__ __forceinline__ float OfRow(int row) const { return even[row] + odd[row]; }
  };
  struct EarlyWeights {
    float weight[kEarly > 0 ? kEarly : 1];
    PartialSums part;
  };

  __device__ explicit SpeculativeSoftmax(float log2_scale) : log2_scale_(log2_scale) {}

  // A tile's first block. `takes_maximum`: of some row of the warp one weight may outweigh the others, and should be 1, which
  // is not rounded.
  __device__ __forceinline__ void Begin(Scores& scores, Weights& weights, bool takes_maximum) {
    num_redone_ = 0;
    is_far_ = false;
    prefers_maximum_ = false;
    if (!takes_maximum) {
      const float first = Range::kFirstReference == 0 ? 0.0f : Range::kFirstReference / log2_scale_;
      const float reference[2] = {first * log2_scale_, first * log2_scale_};
      PartialSums part = {};
      Weigh(scores, weights, reference, part);
      const float sum[2] = {RowSum(part.OfRow(0)), RowSum(part.OfRow(1))};
      if (__all_sync(kAllLanes, IsGoodFirst(sum[0]) & IsGoodFirst(sum[1]))) {
        row_[0].maximum = row_[1].maximum = first;
        sum_[0] = part.OfRow(0);
        sum_[1] = part.OfRow(1);
        return;
      }
    }
    row_[0].maximum = row_[1].maximum = -INFINITY;
    sum_[0] = sum_[1] = 0;
    float factor[2];
    WeighByMaximum(scores, weights, factor);
    prefers_maximum_ = is_far_;
  }

  // A later block, in two parts: the first weights are computed while P·V still reads those of the block before, and have
  // registers of their own. Each is false if the weights are not good enough: RedoBlock is to follow.
  __device__ __forceinline__ bool TryEarly(const Scores& scores, EarlyWeights& early) const {
    const float most_sum = prefers_maximum_ ? -1.0f : Range::kMostSum;  // a branch would be one that lanes could part at
    const float reference[2] = {row_[0].maximum * log2_scale_, row_[1].maximum * log2_scale_};
    early.part = {};
#pragma unroll
    for (int i = 0; i < kEarly; ++i) {
      early.weight[i] = Exp2(fmaf(scores[i], log2_scale_, -reference[i / 2 % 2]));
      (i % 2 == 0 ? early.part.even : early.part.odd)[i / 2 % 2] += early.weight[i];
    }
    return __all_sync(kAllLanes, (early.part.OfRow(0) <= most_sum) & (early.part.OfRow(1) <= most_sum));
  }
  __device__ __forceinline__ bool TryRest(const Scores& scores, const EarlyWeights& early, Weights& weights) {
    if (kEarly == 0 && prefers_maximum_) return false;
    const float reference[2] = {row_[0].maximum * log2_scale_, row_[1].maximum * log2_scale_};
    PartialSums part = early.part;
#pragma unroll
    for (int i = 0; i < kEarly; i += 2) weights[i / 2] = PackPair<T>(early.weight[i], early.weight[i + 1]);
    Weigh<kEarly>(scores, weights, reference, part);
    const float sum[2] = {part.OfRow(0), part.OfRow(1)};
    const bool is_good = __all_sync(kAllLanes, (sum[0] <= Range::kMostSum) & (sum[1] <= Range::kMostSum));
    if (is_good) {
      sum_[0] += sum[0];
      sum_[1] += sum[1];
    }
    return is_good;
  }

  // The same block again, by its maximum: the tile's `num_blocks`-th after its first. The output so far is to be multiplied
  // with `factor`.
  __device__ __forceinline__ void RedoBlock(Scores& scores, Weights& weights, int num_blocks, float (&factor)[2]) {
    ++num_redone_;
    WeighByMaximum(scores, weights, factor);
    prefers_maximum_ = is_far_ || 2 * num_redone_ > num_blocks + kFewBlocks;
  }

  __device__ __forceinline__ SoftmaxRows rows() const { return {{row_[0].maximum, row_[1].maximum}, {sum_[0], sum_[1]}}; }
  __device__ __forceinline__ float log2_scale() const { return log2_scale_; }

 private:
  // A tile takes maxima at once when more than half of its blocks were done twice, and more than so few.
  static constexpr int kFewBlocks = 4;

  // NaN is not.
  __device__ static __forceinline__ bool IsGoodFirst(float row_sum) {
    return (row_sum >= Range::kLeastFirstSum) & (row_sum <= Range::kMostSum);
  }

  // The four lanes of a row together.
  __device__ static __forceinline__ float RowSum(float x) {
    x += __shfl_xor_sync(kAllLanes, x, 1);
    return x + __shfl_xor_sync(kAllLanes, x, 2);
  }
  __device__ static __forceinline__ float RowMaximum(float x) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
    return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
  }

  // Weights from score kFrom on, which refer to `reference`, in powers of two; adds them to the thread's part of the rows'
  // sums.
  template <int kFrom = 0>
  __device__ __forceinline__ void Weigh(const Scores& scores, Weights& weights, const float (&reference)[2],
                                        PartialSums& part) const {
#pragma unroll
    for (int i = kFrom; i < kKeys / 2; i += 2) {
      const int row = i / 2 % 2;
      const float even = Exp2(fmaf(scores[i], log2_scale_, -reference[row]));
      const float odd = Exp2(fmaf(scores[i + 1], log2_scale_, -reference[row]));
      weights[i / 2] = PackPair<T>(even, odd);
      part.even[row] += even;
      part.odd[row] += odd;
    }
  }

  // The classic online softmax: maxima first, then weights that refer to them. Where a maximum is so far from 0 that its
  // product with the scale would be too coarse, scores become distances from it.
  __device__ __forceinline__ void WeighByMaximum(Scores& scores, Weights& weights, float (&factor)[2]) {
    float maximum[2] = {fmaxf(scores[0], scores[1]), fmaxf(scores[2], scores[3])};
#pragma unroll
    for (int i = 4; i < kKeys / 2; i += 4) {
      maximum[0] = fmaxf(maximum[0], fmaxf(scores[i], scores[i + 1]));
      maximum[1] = fmaxf(maximum[1], fmaxf(scores[i + 2], scores[i + 3]));
    }
    maximum[0] = fmaxf(RowMaximum(maximum[0]), row_[0].maximum);
    maximum[1] = fmaxf(RowMaximum(maximum[1]), row_[1].maximum);
    const bool was_far = is_far_;
    is_far_ =
        __any_sync(kAllLanes, RunningSoftmax::IsFar(maximum[0], log2_scale_) || RunningSoftmax::IsFar(maximum[1], log2_scale_));
#pragma unroll
    for (int half = 0; half < 2; ++half) factor[half] = MoveTo(row_[half], maximum[half], was_far);
    float reference[2] = {row_[0].Reference() * log2_scale_, row_[1].Reference() * log2_scale_};
    if (is_far_) {
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) scores[i] -= row_[i / 2 % 2].Reference();
      reference[0] = reference[1] = 0;
    }
    PartialSums part = {};
    Weigh(scores, weights, reference, part);
    sum_[0] = fmaf(sum_[0], factor[0], part.OfRow(0));
    sum_[1] = fmaf(sum_[1], factor[1], part.OfRow(1));
  }

  // RunningSoftmax::MoveTo, without branches where nothing is far.
  __device__ __forceinline__ float MoveTo(RunningSoftmax& row, float maximum, bool was_far) const {
    if (was_far || is_far_) return row.MoveTo(maximum, log2_scale_, was_far, is_far_);
    const float before = row.maximum;
    row.maximum = maximum;
    const float factor = Exp2(__fsub_rn(__fmul_rn(before, log2_scale_), __fmul_rn(maximum, log2_scale_)));
    return before == -INFINITY ? 0.0f : factor;
  }

  const float log2_scale_;
  RunningSoftmax row_[2];
  float sum_[2] = {};  // of this thread's columns
  int num_redone_ = 0;
  bool prefers_maximum_ = false;  // of all rows of the warp
  bool is_far_ = false;           // likewise
};

}  // namespace ridgeline::kernels::attention
