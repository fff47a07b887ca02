// Vectors of float32 from and to memory in float32, float16 or bfloat16, for code compiled once per SIMD target (hence no
// ordinary include guard). They agree with float16.h bit for bit; Highway 1.0.3's own conversions do not: bfloat16 truncates on
// x86, and so does float16 before F16C, where infinities and NaN come out wrong as well.
#if defined(RIDGELINE_KERNELS_COMMON_FLOAT16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_KERNELS_COMMON_FLOAT16_INL_H_
#undef RIDGELINE_KERNELS_COMMON_FLOAT16_INL_H_
#else
#define RIDGELINE_KERNELS_COMMON_FLOAT16_INL_H_
#endif

#include <cstddef>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/common/float16.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether the target has instructions that convert float16 to nearest, ties to even.
inline constexpr bool kHasFloat16Instructions =
    HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON;

template <class D>  // float32
HWY_INLINE hn::Vec<D> LoadFloat32(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadFloat32(D d, const BFloat16* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> du16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(du16, &from->bits))));
}

// The same without such instructions: as in float16.h, with its branches as selections.
template <class D, class VU16>
HWY_INLINE hn::Vec<D> Float16BitsToFloat32(D d, VU16 bits) {
  const hn::RebindToUnsigned<D> du;
  const auto wide = hn::PromoteTo(du, bits);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7fffu)));
  // The exponent's bias is 112 too small; the product corrects it and makes subnormals normal. Infinity and NaN need all ones.
  const auto value = hn::BitCast(d, magnitude);
  const auto infinity = hn::BitCast(d, hn::Set(du, 0x7c00u << 13));
  const auto rebiased = hn::BitCast(du, hn::Mul(value, hn::Set(d, 0x1p112f)));
  const auto all_ones = hn::IfThenElseZero(hn::RebindMask(du, hn::Ge(value, infinity)), hn::Set(du, 0x7f800000u));
  const auto quiet = hn::IfThenElseZero(hn::RebindMask(du, hn::Gt(value, infinity)), hn::Set(du, 0x00400000u));
  return hn::BitCast(d, hn::Or(hn::Or(sign, rebiased), hn::Or(all_ones, quiet)));
}

template <class D>
HWY_INLINE hn::VFromD<hn::RebindToUnsigned<D>> Float32ToFloat16Bits(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const auto magnitude_value = hn::BitCast(d, magnitude);

  const auto round_up = hn::Add(hn::Set(du, 0xfffu), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u)));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(du, 112u << 23)), round_up));
  const auto half = hn::Set(d, 0.5f);
  const auto subnormal = hn::Sub(hn::BitCast(du, hn::Add(magnitude_value, half)), hn::BitCast(du, half));
  const auto quiet_nan = hn::Or(hn::Set(du, 0x7e00u), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3ffu)));

  const auto is_small = hn::RebindMask(du, hn::Lt(magnitude_value, hn::Set(d, 0x1p-14f)));
  const auto is_large = hn::RebindMask(du, hn::Ge(magnitude_value, hn::Set(d, 65520.0f)));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
  const auto finite = hn::IfThenElse(is_small, subnormal, normal);
  const auto number = hn::IfThenElse(is_large, hn::Set(du, 0x7c00u), finite);
  return hn::Or(sign, hn::IfThenElse(is_nan, quiet_nan, number));
}

template <class D>
HWY_INLINE hn::Vec<D> LoadFloat32(D d, const Float16* from) {
  const hn::Rebind<std::uint16_t, D> du16;
  const auto bits = hn::LoadU(du16, &from->bits);
  if constexpr (kHasFloat16Instructions) {
    const hn::Rebind<hwy::float16_t, D> df16;
    return hn::PromoteTo(d, hn::BitCast(df16, bits));
  } else {
    return Float16BitsToFloat32(d, bits);
  }
}

template <class D>
HWY_INLINE void StoreFloat32(hn::Vec<D> v, D d, float* to) {
  hn::StoreU(v, d, to);
}

template <class D>
HWY_INLINE void StoreFloat32(hn::Vec<D> v, D /*d*/, BFloat16* to) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::int32_t, D> di;
  const hn::Rebind<std::uint16_t, D> du16;
  const auto bits = hn::BitCast(du, v);
  const auto high = hn::ShiftRight<16>(bits);
  const auto round_up = hn::Add(hn::Set(du, 0x7fffu), hn::And(high, hn::Set(du, 1u)));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, round_up));
  const auto quiet_nan = hn::Or(high, hn::Set(du, 0x40u));
  const auto result = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet_nan, rounded);
  hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, result)), du16, &to->bits);
}

template <class D>
HWY_INLINE void StoreFloat32(hn::Vec<D> v, D d, Float16* to) {
  const hn::Rebind<std::uint16_t, D> du16;
  if constexpr (kHasFloat16Instructions) {
    const hn::Rebind<hwy::float16_t, D> df16;
    hn::StoreU(hn::BitCast(du16, hn::DemoteTo(df16, v)), du16, &to->bits);
  } else {
    const hn::Rebind<std::int32_t, D> di;
    hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, Float32ToFloat16Bits(d, v))), du16, &to->bits);
  }
}

// The first `count` < Lanes(d) elements alone: memory beyond them is not touched, and their lanes are 0.
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadFloat32N(D d, const T* from, std::size_t count) {
  HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
  std::memcpy(buffer, from, count * sizeof(T));
  return LoadFloat32(d, buffer);
}

template <class D, typename T>
HWY_INLINE void StoreFloat32N(hn::Vec<D> v, D d, T* to, std::size_t count) {
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  StoreFloat32(v, d, buffer);
  std::memcpy(to, buffer, count * sizeof(T));
}

}  // namespace ridgeline::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RIDGELINE_KERNELS_COMMON_FLOAT16_INL_H_
