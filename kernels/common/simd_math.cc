#include "kernels/common/simd_math.h"

#include <algorithm>

#include "kernels/common/simd_fixed_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/simd_math.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/float16-inl.h"
#include "kernels/common/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::HWY_NAMESPACE {

void ExpArray(const float* from, float* to, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = hn::MaxLanes(d);
  for (std::int64_t i = 0; i < count; i += lanes) {
    const std::int64_t n = std::min(lanes, count - i);
    StoreFloat32N(Exp(d, LoadFloat32N(d, from + i, n)), d, to + i, n);
  }
}

void TanhArray(const float* from, float* to, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = hn::MaxLanes(d);
  for (std::int64_t i = 0; i < count; i += lanes) {
    const std::int64_t n = std::min(lanes, count - i);
    StoreFloat32N(Tanh(d, LoadFloat32N(d, from + i, n)), d, to + i, n);
  }
}

}  // namespace ridgeline::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels {

HWY_EXPORT(ExpArray);
HWY_EXPORT(TanhArray);

void ExpArray(const float* from, float* to, std::int64_t count) { HWY_DYNAMIC_DISPATCH(ExpArray)(from, to, count); }

void TanhArray(const float* from, float* to, std::int64_t count) { HWY_DYNAMIC_DISPATCH(TanhArray)(from, to, count); }

}  // namespace ridgeline::kernels
#endif  // HWY_ONCE
