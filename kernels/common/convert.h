// Arrays of elements between float32 and the 16-bit types, with SIMD instructions; rounding as in float16.h.
#pragma once

#include <cstdint>

#include "kernels/common/data_type.h"

namespace ridgeline::kernels {

// `type` is float32, float16 or bfloat16. No overlap, on the calling thread.
void ConvertToFloat32(DataType type, const void* from, std::int64_t elements, float* to);
void ConvertFromFloat32(DataType type, const float* from, std::int64_t elements, void* to);

}  // namespace ridgeline::kernels
