#include "kernels/common/simd_target.h"

#include "kernels/common/simd_fixed_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/simd_target.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::HWY_NAMESPACE {

std::int64_t Target() { return HWY_TARGET; }
int Float32Lanes() { return static_cast<int>(hwy::HWY_NAMESPACE::Lanes(hwy::HWY_NAMESPACE::ScalableTag<float>())); }

}  // namespace ridgeline::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels {

HWY_EXPORT(Target);
HWY_EXPORT(Float32Lanes);

std::string SimdTargetName() { return hwy::TargetName(HWY_DYNAMIC_DISPATCH(Target)()); }

int SimdFloat32Lanes() { return HWY_DYNAMIC_DISPATCH(Float32Lanes)(); }

}  // namespace ridgeline::kernels
#endif  // HWY_ONCE
