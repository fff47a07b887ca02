// The types that matrix units multiply, and what their products are summed in.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

namespace ridgeline::kernels {

// A float of which the matrix unit reads 19 bits.
struct Tf32 {
  float value;
};

// T: Tf32, __half, __nv_bfloat16, __nv_fp8_e4m3, __nv_fp8_e5m2 or std::int8_t.
template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, std::int8_t>, std::int32_t, float>;

}  // namespace ridgeline::kernels
