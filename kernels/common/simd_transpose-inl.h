// Transposition of square tiles held in registers, for code compiled once per SIMD target (hence no ordinary include guard).
#if defined(RIDGELINE_KERNELS_COMMON_SIMD_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_KERNELS_COMMON_SIMD_TRANSPOSE_INL_H_
#undef RIDGELINE_KERNELS_COMMON_SIMD_TRANSPOSE_INL_H_
#else
#define RIDGELINE_KERNELS_COMMON_SIMD_TRANSPOSE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// 4x4 within every 128-bit block: block b of m[i] becomes the i-th elements of block b of m[0..3].
template <class D>
HWY_INLINE void TransposeWithinBlocks(D d, hn::Vec<D>* m) {
  const hn::Repartition<std::uint64_t, D> pairs;
  const auto lower_01 = hn::BitCast(pairs, hn::InterleaveLower(d, m[0], m[1]));
  const auto upper_01 = hn::BitCast(pairs, hn::InterleaveUpper(d, m[0], m[1]));
  const auto lower_23 = hn::BitCast(pairs, hn::InterleaveLower(d, m[2], m[3]));
  const auto upper_23 = hn::BitCast(pairs, hn::InterleaveUpper(d, m[2], m[3]));
  m[0] = hn::BitCast(d, hn::InterleaveLower(pairs, lower_01, lower_23));
  m[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, lower_01, lower_23));
  m[2] = hn::BitCast(d, hn::InterleaveLower(pairs, upper_01, upper_23));
  m[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, upper_01, upper_23));
}

// The matrix of whole 128-bit blocks whose rows are m[0], m[4], m[8], ...
template <class D>
HWY_INLINE void TransposeBlocks(D d, hn::Vec<D>* m) {
  if constexpr (hn::MaxLanes(D()) == 8) {
    const auto lower = hn::ConcatLowerLower(d, m[4], m[0]);
    const auto upper = hn::ConcatUpperUpper(d, m[4], m[0]);
    m[0] = lower;
    m[4] = upper;
  }
  if constexpr (hn::MaxLanes(D()) == 16) {
    const auto lower_even = hn::ConcatLowerLower(d, m[8], m[0]);  // blocks 0 and 1 of m[0], then of m[8]
    const auto lower_odd = hn::ConcatLowerLower(d, m[12], m[4]);
    const auto upper_even = hn::ConcatUpperUpper(d, m[8], m[0]);
    const auto upper_odd = hn::ConcatUpperUpper(d, m[12], m[4]);
    m[0] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(lower_odd), lower_even);
    m[4] = hn::OddEvenBlocks(lower_odd, hn::SwapAdjacentBlocks(lower_even));
    m[8] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(upper_odd), upper_even);
    m[12] = hn::OddEvenBlocks(upper_odd, hn::SwapAdjacentBlocks(upper_even));
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

// Lane j of m[i] swaps with lane i of m[j]; m has Lanes(d) vectors.
template <class D>
HWY_INLINE void Transpose(D d, hn::Vec<D>* m) {
#if HWY_TARGET == HWY_SCALAR
  (void)d, (void)m;
#else
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  HWY_UNROLL(4)
  for (std::int64_t i = 0; i < kLanes; i += 4) TransposeWithinBlocks(d, m + i);
  HWY_UNROLL(4)
  for (std::int64_t i = 0; i < 4; ++i) TransposeBlocks(d, m + i);
#endif
}

}  // namespace ridgeline::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RIDGELINE_KERNELS_COMMON_SIMD_TRANSPOSE_INL_H_
