// Include before any Highway header, in files that keep vectors in arrays: leaves out the targets whose vectors have no size at
// compile time, and SSSE3, which no processor of interest has as its best.
#pragma once

#ifdef HWY_HIGHWAY_INCLUDED
#error "simd_fixed_targets.h comes before every Highway header"
#endif

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
