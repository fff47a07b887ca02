// Activation functions on vectors of float32, for code compiled once per SIMD target (hence no ordinary include guard).
#if defined(RIDGELINE_KERNELS_FUSED_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_KERNELS_FUSED_ACTIVATIONS_INL_H_
#undef RIDGELINE_KERNELS_FUSED_ACTIVATIONS_INL_H_
#else
#define RIDGELINE_KERNELS_FUSED_ACTIVATIONS_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/common/simd_math-inl.h"
#include "kernels/fused/fused.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::fused::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::ExpOfNonPositive;

// 1 / (1 + exp(-x)).
template <class D>
HWY_INLINE hn::Vec<D> Sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, kernels::HWY_NAMESPACE::Exp(d, hn::Neg(x))));
}

// The normal distribution function's tail beyond |x|: exp(-x^2 / 2) times a function of t = 1 / (1 + p|x|) that is nearly
// straight, minimax in relative error (2.6e-8).
template <class D>
HWY_INLINE hn::Vec<D> NormalTail(D d, hn::Vec<D> x) {
  constexpr float kCoefficients[] = {-0.011982818f,   0.0577059631f, -0.0925085108f, 0.0407225680f,
                                     -0.00473556036f, 0.0343028328f, 0.0613856581f,  0.0856104965f,
                                     0.103823871f,    0.112837618f,  0.112837912f};
  const auto one = hn::Set(d, 1.0f);
  const auto t = hn::Div(one, hn::MulAdd(hn::Set(d, 0.282842712f), hn::Abs(x), one));
  auto sum = hn::Set(d, kCoefficients[0]);
  for (std::size_t i = 1; i < std::size(kCoefficients); ++i) sum = hn::MulAdd(sum, t, hn::Set(d, kCoefficients[i]));
  const auto bell = ExpOfNonPositive(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
  return hn::Mul(hn::Mul(sum, t), bell);
}

template <class D>
HWY_INLINE hn::Vec<D> GeluErf(D d, hn::Vec<D> x) {
  const auto tail = NormalTail(d, x);
  return hn::Mul(x, hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(hn::Set(d, 1.0f), tail), tail));
}

// 1 + tanh(u) is 2 / (1 + exp(-2u)), which loses nothing where tanh(u) is near -1.
template <class D>
HWY_INLINE hn::Vec<D> GeluTanh(D d, hn::Vec<D> x) {
  constexpr float kFactor = 1.595769122f;  // 2 * sqrt(2 / pi)
  const auto factor = hn::Set(d, kFactor);
  const auto argument = hn::Mul(x, hn::MulAdd(hn::Set(d, 0.044715f * kFactor), hn::Mul(x, x), factor));
  return hn::Mul(x, Sigmoid(d, argument));
}

template <class D>
HWY_INLINE hn::Vec<D> Gelu(D d, GeluForm form, hn::Vec<D> x) {
  return form == GeluForm::kTanh ? GeluTanh(d, x) : GeluErf(d, x);
}

// erf(x) = 1 - 2 * tail(x * sqrt(2)), within 2^-22.
template <class D>
HWY_INLINE hn::Vec<D> Erf(D d, hn::Vec<D> x) {
  const auto tail = NormalTail(d, hn::Mul(x, hn::Set(d, 1.414213562f)));
  return hn::CopySign(hn::NegMulAdd(hn::Set(d, 2.0f), tail, hn::Set(d, 1.0f)), x);
}

}  // namespace ridgeline::kernels::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RIDGELINE_KERNELS_FUSED_ACTIVATIONS_INL_H_
