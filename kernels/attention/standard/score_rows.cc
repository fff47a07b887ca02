#include "kernels/attention/standard/score_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/standard/score_rows.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                                        // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/float16-inl.h"
#include "kernels/common/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::attention::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::ExpOfNonPositive;
using kernels::HWY_NAMESPACE::LoadFloat32N;
using kernels::HWY_NAMESPACE::StoreFloat32N;
using kernels::HWY_NAMESPACE::Tanh;
using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr FloatTag kTag;

// Replaces data[0, size) by f(elements, index of the first, how many count), vector by vector.
template <class F>
HWY_INLINE void TransformRow(float* data, std::size_t size, const F& f) {
  const std::size_t lanes = hn::Lanes(kTag);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) hn::StoreU(f(hn::LoadU(kTag, data + i), i, lanes), kTag, data + i);
  const std::size_t rest = size - i;
  if (rest > 0) StoreFloat32N(f(LoadFloat32N(kTag, data + i, rest), i, rest), kTag, data + i, rest);
}

HWY_INLINE FloatVec LoadUpTo(const float* from, std::size_t count) {
  return count == hn::Lanes(kTag) ? hn::LoadU(kTag, from) : LoadFloat32N(kTag, from, count);
}

HWY_INLINE FloatVec KeepFirst(FloatVec v, std::size_t count, float others) {
  return count == hn::Lanes(kTag) ? v : hn::IfThenElse(hn::FirstN(kTag, count), v, hn::Set(kTag, others));
}

// Turns the visible scores into logits and returns the largest, -inf if there is none. A NaN may be passed over: it survives in
// the row and comes out of the sum.
float MakeLogits(const ScoreRow& row) {
  const std::int64_t begin = row.visible.begin;
  const FloatVec cap = hn::Set(kTag, row.logit_soft_cap);
  const FloatVec slope = hn::Set(kTag, row.alibi_slope);
  const FloatVec minus_infinity = hn::Set(kTag, -kInfinity);
  FloatVec largest = minus_infinity;
  TransformRow(row.scores + begin, row.visible.size(), [&](FloatVec logit, std::size_t i, std::size_t count) HWY_ATTR {
    if (row.logit_soft_cap > 0) logit = hn::Mul(cap, Tanh(kTag, hn::Div(logit, cap)));
    if (row.alibi_slope != 0) {
      const std::int64_t first = begin + static_cast<std::int64_t>(i) - row.position;
      logit = hn::NegMulAdd(slope, hn::Abs(hn::Iota(kTag, static_cast<float>(first))), logit);
    }
    if (row.bias != nullptr) {
      const FloatVec bias = LoadUpTo(row.bias + begin + i, count);
      // Not by the sum alone: a masked key's score may be NaN.
      logit = hn::IfThenElse(hn::Eq(bias, minus_infinity), minus_infinity, hn::Add(logit, bias));
    }
    largest = hn::Max(largest, KeepFirst(logit, count, -kInfinity));
    return logit;
  });
  return hn::GetLane(hn::MaxOfLanes(kTag, largest));
}

// Replaces logits by exp(logit - shift) and returns their sum. No logit exceeds shift, unless one is NaN, and so is the sum
// then.
float Exponentiate(float* logits, std::size_t size, float shift) {
  const FloatVec shifts = hn::Set(kTag, shift);
  const FloatVec minus_infinity = hn::Set(kTag, -kInfinity);
  const FloatVec hidden = hn::Set(kTag, kHiddenProbability);
  FloatVec sum = hn::Zero(kTag);
  TransformRow(logits, size, [&](FloatVec logit, std::size_t, std::size_t count) HWY_ATTR {
    const FloatVec exponential = ExpOfNonPositive(kTag, hn::Sub(logit, shifts));
    const FloatVec probability = hn::IfThenElse(hn::Eq(logit, minus_infinity), hidden, exponential);
    sum = hn::Add(sum, KeepFirst(probability, count, 0));
    return probability;
  });
  return hn::GetLane(hn::SumOfLanes(kTag, sum));
}

void Multiply(float* data, std::size_t size, float factor) {
  const FloatVec factors = hn::Set(kTag, factor);
  TransformRow(data, size, [&](FloatVec v, std::size_t, std::size_t) HWY_ATTR { return hn::Mul(v, factors); });
}

}  // namespace

float Softmax(const ScoreRow& row) {
  const float largest = std::max(MakeLogits(row), row.sink_logit);
  // Where nothing is visible, -inf - (-inf) would be NaN; any finite shift leaves exp(-inf) = 0.
  const float shift = largest == -kInfinity ? 0 : largest;
  float* visible = row.scores + row.visible.begin;
  const float sum = Exponentiate(visible, row.visible.size(), shift) + std::exp(row.sink_logit - shift);
  if (sum != 0) Multiply(visible, row.visible.size(), 1 / sum);
  std::fill(row.scores, visible, kHiddenProbability);
  std::fill(row.scores + row.visible.end, row.scores + row.num_keys, kHiddenProbability);
  return shift + std::log(sum);  // log(0) = -inf
}

bool IsFinite(const float* matrix, std::int64_t rows, std::size_t columns, std::int64_t row_stride_elems) {
  const std::size_t lanes = hn::Lanes(kTag);
  // 0 times an element is 0, or NaN where the element is not finite, and NaN stays in a sum.
  const FloatVec zero = hn::Zero(kTag);
  FloatVec sum = zero;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* elements = matrix + row * row_stride_elems;
    std::size_t i = 0;
    for (; i + lanes <= columns; i += lanes) sum = hn::MulAdd(hn::LoadU(kTag, elements + i), zero, sum);
    if (i < columns) sum = hn::MulAdd(LoadFloat32N(kTag, elements + i, columns - i), zero, sum);
  }
  return hn::AllTrue(kTag, hn::Eq(sum, zero));
}

void SumValues(const float* probabilities, std::int64_t num_keys, const float* values, std::int64_t value_stride_elems,
               std::size_t value_dim, float* output) {
  std::fill_n(output, value_dim, 0.0f);
  for (std::int64_t key = 0; key < num_keys; ++key) {
    const float probability = probabilities[key];
    if (probability == 0 && std::signbit(probability)) continue;
    // One that underflowed was not 0: an infinite value times it is infinite, not NaN.
    const FloatVec weight = hn::Set(kTag, probability == 0 ? std::numeric_limits<float>::denorm_min() : probability);
    const float* value = values + key * value_stride_elems;
    TransformRow(output, value_dim, [&](FloatVec sum, std::size_t i, std::size_t count) HWY_ATTR {
      return hn::MulAdd(weight, LoadUpTo(value + i, count), sum);
    });
  }
}

}  // namespace ridgeline::kernels::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::attention {

HWY_EXPORT(Softmax);
HWY_EXPORT(IsFinite);
HWY_EXPORT(SumValues);

float SoftmaxInPlace(const ScoreRow& row) { return HWY_DYNAMIC_DISPATCH(Softmax)(row); }

bool AllFinite(const float* matrix, std::int64_t rows, std::int64_t columns, std::int64_t row_stride_elems) {
  return HWY_DYNAMIC_DISPATCH(IsFinite)(matrix, rows, columns, row_stride_elems);
}

void SumVisibleValues(const float* probabilities, std::int64_t num_keys, const float* values, std::int64_t value_stride_elems,
                      std::int64_t value_dim, float* output) {
  HWY_DYNAMIC_DISPATCH(SumValues)(probabilities, num_keys, values, value_stride_elems, value_dim, output);
}

}  // namespace ridgeline::kernels::attention
#endif  // HWY_ONCE
