// exp and tanh of vectors of float32, within 2 ulp everywhere, for code compiled once per SIMD target (hence no ordinary
// include guard). NaN gives NaN, infinities their limits, results too small for float32 round to subnormals or zero.
// Polynomials: minimax in relative error (Remez), coefficients rounded to float32. tests/unit/kernels/simd_math_test.cc holds
// both to their promise.
#if defined(RIDGELINE_KERNELS_COMMON_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_KERNELS_COMMON_SIMD_MATH_INL_H_
#undef RIDGELINE_KERNELS_COMMON_SIMD_MATH_INL_H_
#else
#define RIDGELINE_KERNELS_COMMON_SIMD_MATH_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// v * 2^exponent for integral exponents in [-160, 130], rounded once.
template <class D>
HWY_INLINE hn::Vec<D> MultiplyByPowerOf2(D d, hn::Vec<D> v, hn::Vec<D> exponent) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (hn::MaxLanes(D()) == 16) return hn::Vec<D>{_mm512_scalef_ps(v.raw, exponent.raw)};
#endif
  // In two steps: 2^exponent alone may be no normal number. The first product is exact.
  const hn::RebindToSigned<D> di;
  const auto bias = hn::Set(di, 127);
  const auto whole = hn::ConvertTo(di, exponent);
  const auto first = hn::ShiftRight<1>(whole);
  const auto second = hn::Sub(whole, first);
  const auto scaled = hn::Mul(v, hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(first, bias))));
  return hn::Mul(scaled, hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(second, bias))));
}

// exp(x) for x <= 0 or NaN; what exceeds 0 by less than 88 is right as well.
// exp(x) = 2^n * exp(r) with n = round(x / ln 2) and |r| <= ln(2)/2; ln 2 in two parts keeps r exact to float32.
template <class D>
HWY_INLINE hn::Vec<D> ExpOfNonPositive(D d, hn::Vec<D> x) {
  const auto lowest = hn::Set(d, -104.0f);  // exp(-104) is less than half of the least subnormal
  // A selection rather than Max, because NaN must stay NaN on every target.
  x = hn::IfThenElse(hn::Lt(x, lowest), lowest, x);
  const auto n = hn::Round(hn::Mul(x, hn::Set(d, 1.442695041f)));
  auto r = hn::NegMulAdd(n, hn::Set(d, 0x1.62e4p-1f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.7f7d1cp-20f), r);
  auto p = hn::Set(d, 0.00138214929f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.00836885162f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0416683070f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.166665196f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.49999994f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return MultiplyByPowerOf2(d, p, n);
}

template <class D>
HWY_INLINE hn::Vec<D> Exp(D d, hn::Vec<D> x) {
  const auto highest = hn::Set(d, 89.0f);  // exp(89) is above float32's range, as is all beyond
  return ExpOfNonPositive(d, hn::IfThenElse(hn::Gt(x, highest), highest, x));
}

// Near zero x + x^3 * q(x^2), where 1 - 2 / (exp(2x) + 1), the form for the rest, would cancel.
template <class D>
HWY_INLINE hn::Vec<D> Tanh(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto magnitude = hn::Abs(x);

  const auto square = hn::Mul(x, x);
  auto q = hn::Set(d, 0.00173693488f);
  q = hn::MulAdd(q, square, hn::Set(d, -0.00765725365f));
  q = hn::MulAdd(q, square, hn::Set(d, 0.0214520320f));
  q = hn::MulAdd(q, square, hn::Set(d, -0.0538927242f));
  q = hn::MulAdd(q, square, hn::Set(d, 0.133326948f));
  q = hn::MulAdd(q, square, hn::Set(d, -0.333333164f));
  const auto small = hn::MulAdd(hn::Mul(q, square), magnitude, magnitude);

  // exp(-2|x|) rather than exp(2|x|): no overflow, and tanh = (1 - e) / (1 + e) is 1 - 2e / (1 + e).
  const auto e = ExpOfNonPositive(d, hn::Mul(magnitude, hn::Set(d, -2.0f)));
  const auto large = hn::Sub(one, hn::Div(hn::Add(e, e), hn::Add(one, e)));

  // NaN takes the first branch and stays NaN.
  return hn::CopySign(hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0.75f)), large, small), x);
}

}  // namespace ridgeline::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RIDGELINE_KERNELS_COMMON_SIMD_MATH_INL_H_
