// Walks over elements in memory, vector by vector, for code compiled once per SIMD target (hence no ordinary include guard).
#if defined(RIDGELINE_KERNELS_FUSED_SPANS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_KERNELS_FUSED_SPANS_INL_H_
#undef RIDGELINE_KERNELS_FUSED_SPANS_INL_H_
#else
#define RIDGELINE_KERNELS_FUSED_SPANS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/common/float16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::fused::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::LoadFloat32;
using kernels::HWY_NAMESPACE::LoadFloat32N;
using kernels::HWY_NAMESPACE::StoreFloat32;
using kernels::HWY_NAMESPACE::StoreFloat32N;
using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

inline constexpr FloatTag kTag;

// Vectors of `count` elements; lanes past it are 0.
template <typename T>
HWY_INLINE FloatVec LoadUpTo(const T* from, std::size_t count) {
  return count == hn::Lanes(kTag) ? LoadFloat32(kTag, from) : LoadFloat32N(kTag, from, count);
}

template <typename T>
HWY_INLINE void StoreUpTo(FloatVec v, T* to, std::size_t count) {
  if (count == hn::Lanes(kTag)) {
    StoreFloat32(v, kTag, to);
  } else {
    StoreFloat32N(v, kTag, to, count);
  }
}

// Calls body(index, how many count) for vector after vector.
template <class Body>
HWY_INLINE void ForEachVector(std::int64_t elements, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(kTag));
  std::int64_t i = 0;
  for (; i + lanes <= elements; i += lanes) body(i, static_cast<std::size_t>(lanes));
  if (i < elements) body(i, static_cast<std::size_t>(elements - i));
}

// Sum of term(index, count) over a row; lanes past count must be 0. Lanes add up kSumBlock elements in float32 and blocks in
// double: the error is that of a sum of a hundred terms, however long the row.
template <class Term>
HWY_INLINE double SumOfTerms(std::int64_t elements, const Term& term) {
  constexpr std::int64_t kSumBlock = 256;
  double sum = 0;
  for (std::int64_t begin = 0; begin < elements; begin += kSumBlock) {
    FloatVec block = hn::Zero(kTag);
    ForEachVector(std::min(kSumBlock, elements - begin),
                  [&](std::int64_t i, std::size_t count) HWY_ATTR { block = hn::Add(block, term(begin + i, count)); });
    sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(kTag, block)));
  }
  return sum;
}

HWY_INLINE FloatVec KeepFirst(FloatVec v, std::size_t count, float others) {
  return count == hn::Lanes(kTag) ? v : hn::IfThenElse(hn::FirstN(kTag, count), v, hn::Set(kTag, others));
}

}  // namespace ridgeline::kernels::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RIDGELINE_KERNELS_FUSED_SPANS_INL_H_
