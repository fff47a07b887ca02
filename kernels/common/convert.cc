#include "kernels/common/convert.h"

#include <cassert>
#include <cstddef>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/convert.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                         // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/float16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::HWY_NAMESPACE {
namespace {

template <typename From, typename To>
void Convert(const From* from, std::size_t elements, To* to) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= elements; i += lanes) StoreFloat32(LoadFloat32(d, from + i), d, to + i);
  if (i < elements) StoreFloat32N(LoadFloat32N(d, from + i, elements - i), d, to + i, elements - i);
}

}  // namespace

void WidenFloat16(const Float16* from, std::size_t elements, float* to) { Convert(from, elements, to); }
void WidenBFloat16(const BFloat16* from, std::size_t elements, float* to) { Convert(from, elements, to); }
void RoundToFloat16(const float* from, std::size_t elements, Float16* to) { Convert(from, elements, to); }
void RoundToBFloat16(const float* from, std::size_t elements, BFloat16* to) { Convert(from, elements, to); }

}  // namespace ridgeline::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels {

HWY_EXPORT(WidenFloat16);
HWY_EXPORT(WidenBFloat16);
HWY_EXPORT(RoundToFloat16);
HWY_EXPORT(RoundToBFloat16);

void ConvertToFloat32(DataType type, const void* from, std::int64_t elements, float* to) {
  switch (type) {
    case DataType::kFloat32:
      if (elements > 0) std::memcpy(to, from, elements * sizeof(float));
      return;
    case DataType::kFloat16:
      return HWY_DYNAMIC_DISPATCH(WidenFloat16)(static_cast<const Float16*>(from), elements, to);
    case DataType::kBFloat16:
      return HWY_DYNAMIC_DISPATCH(WidenBFloat16)(static_cast<const BFloat16*>(from), elements, to);
    default:
      assert(false);
  }
}

void ConvertFromFloat32(DataType type, const float* from, std::int64_t elements, void* to) {
  switch (type) {
    case DataType::kFloat32:
      if (elements > 0) std::memcpy(to, from, elements * sizeof(float));
      return;
    case DataType::kFloat16:
      return HWY_DYNAMIC_DISPATCH(RoundToFloat16)(from, elements, static_cast<Float16*>(to));
    case DataType::kBFloat16:
      return HWY_DYNAMIC_DISPATCH(RoundToBFloat16)(from, elements, static_cast<BFloat16*>(to));
    default:
      assert(false);
  }
}

}  // namespace ridgeline::kernels
#endif  // HWY_ONCE
