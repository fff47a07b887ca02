// Which instruction set the SIMD kernels run on.
#pragma once

#include <string>

namespace ridgeline::kernels {

// Name of the best target that this processor supports and this build contains, e.g. "AVX3_ZEN4", "AVX2", "NEON".
std::string SimdTargetName();

// float32 lanes of one vector register of that target.
int SimdFloat32Lanes();

}  // namespace ridgeline::kernels
