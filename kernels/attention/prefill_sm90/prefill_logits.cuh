// Products of a block -> logits, for the options that change more than a factor: attention.h has the formula. What follows
// takes them in units: a factor that would cost a multiplication each goes into the softmax's.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/flash/running_softmax.cuh"
#include "kernels/attention/prefill_sm90/prefill_arguments.h"
#include "kernels/attention/prefill_sm90/prefill_bias.cuh"
#include "kernels/attention/prefill_sm90/prefill_shape.h"
#include "kernels/attention/prefill_sm90/prefill_tanh.h"
#include "kernels/attention/prefill_sm90/prefill_traits.cuh"

namespace ridgeline::kernels::attention {

// The logit that a score of 1 stands for.
template <LogitOption kOption>
__device__ __forceinline__ float LogitUnit(const PrefillArguments& arguments) {
  if constexpr (kOption == LogitOption::kNone) return arguments.params.scale;
  if constexpr (kOption == LogitOption::kSoftCap) return arguments.logits.tanh_unit;
  return 1;
}

// The same for all x, in the units of prefill_tanh.h: off by 2^-22 at most where |x| is not small, Inf and NaN as tanh has
// them.
__device__ __forceinline__ float TanhOfAny(float x) {
  constexpr float kLog2E = 1.4426950408889634f;
  const float far = fmaf(-2 / kTanhUnit, Reciprocal(1 + Exp2(x * (2 * kTanhUnit * kLog2E))), 1 / kTanhUnit);
  return fabsf(x) < kSmallTanh ? TanhOfSmall(x) : far;
}

// Scores times `factor` -> their tanh. The special function units have the exponentials to do: where all of a warp's are small
// they get no more. In parts, whose code has registers to itself.
template <int kPart, int kScores>
__device__ __forceinline__ void TanhScores(float (&scores)[kScores], float factor) {
  static_assert(kScores % kPart == 0);
#pragma unroll
  for (int begin = 0; begin < kScores; begin += kPart) {
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = begin; i < begin + kPart; ++i) {
      scores[i] *= factor;
      bits |= __float_as_uint(scores[i]);
    }
    if (__any_sync(0xffffffff, (bits & kNotSmallBit) != 0)) {
#pragma unroll
      for (int i = begin; i < begin + kPart; ++i) scores[i] = TanhOfAny(scores[i]);
    } else {
#pragma unroll
      for (int i = begin; i < begin + kPart; ++i) scores[i] = TanhOfSmall(scores[i]);
    }
  }
}

// What a thread of a computing warpgroup knows of the options, and what it does to its scores: of two rows, eight apart, and of
// columns 8i and 8i + 1 from its first on.
template <typename Traits>
class BlockLogits {
  static constexpr int kScores = Traits::kTileKeys / 2;
  static constexpr int kTanhPart = Traits::kConsumers == 2 && kScores % 16 == 0 ? 16 : 8;
  static constexpr bool kIsAny = Traits::kLogitOption == LogitOption::kAny;

 public:
  __device__ __forceinline__ explicit BlockLogits(const PrefillArguments& arguments) : arguments_(arguments) {}

  // What comes from memory, before the products of a block are issued. `first_row`: the thread's first in the tile;
  // `first_key`: of its first column, in the sequence. Pointers are found anew: kept, they would take registers that the
  // products need.
  __device__ __forceinline__ void Prefetch(const PrefillTile& tile, int first_row, int first_key) {
    if (HasAlibi()) slope_ = arguments_.params.alibi_slopes[tile.query_head];
    if (HasBias()) bias_.Load(arguments_, tile, first_row, first_key);
  }

  // `distance`: from the thread's first key to its first query. `is_before`: no key of the block is after one of the warp's
  // queries.
  __device__ __forceinline__ void Finish(float (&scores)[kScores], int distance, bool is_before) const {
    if constexpr (!Traits::kHasLogitOptions) return;
    float factor = arguments_.params.scale;
    if (HasSoftCap()) {
      TanhScores<kTanhPart>(scores, arguments_.logits.tanh_factor);
      if constexpr (!kIsAny) return;
      factor = arguments_.logits.tanh_unit;
    }
    if (HasAlibi()) {
      AddAlibi(scores, factor, static_cast<float>(distance), is_before);
      if constexpr (!kIsAny) return;
      factor = 1;
    }
    if (HasBias()) {
      bias_.AddTo(scores, factor);
    } else {
#pragma unroll
      for (int i = 0; i < kScores; ++i) scores[i] *= factor;
    }
  }

 private:
  __device__ __forceinline__ bool HasSoftCap() const {
    return Traits::kLogitOption == LogitOption::kSoftCap || (kIsAny && arguments_.params.logit_soft_cap > 0);
  }
  __device__ __forceinline__ bool HasAlibi() const {
    return Traits::kLogitOption == LogitOption::kAlibi || (kIsAny && arguments_.params.alibi_slopes != nullptr);
  }
  __device__ __forceinline__ bool HasBias() const { return kIsAny && arguments_.params.bias != nullptr; }

  // Distances are exact, and so is all but the last bit of their products with the slope: it may be so large that nothing less
  // would do. `is_before`: all keys of the block are before the warp's queries. Slopes of up to 1 then take two instructions,
  // where there are registers for both ways.
  __device__ __forceinline__ void AddAlibi(float (&scores)[kScores], float factor, float distance, bool is_before) const {
    if (Traits::kOverlapsTiles && is_before && fabsf(slope_) <= 1) {
      const float of_row[2] = {-slope_ * distance, -slope_ * (distance + 8)};
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        const float alibi = fmaf(slope_, static_cast<float>(Column(i)), of_row[i / 2 % 2]);
        scores[i] = fmaf(scores[i], factor, alibi);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        const float of_key = distance + static_cast<float>(i / 2 % 2 * 8 - Column(i));
        scores[i] = fmaf(scores[i], factor, __fmul_rn(fabsf(of_key), -slope_));
      }
    }
  }

  // Counted from the thread's first.
  __device__ static constexpr int Column(int score) { return score / 4 * 8 + score % 2; }

  const PrefillArguments& arguments_;
  float slope_ = 0;
  BiasFragment<kScores> bias_;
};

}  // namespace ridgeline::kernels::attention
