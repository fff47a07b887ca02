// Writing results: pairs from fragments, pieces of 16 bytes by way of shared memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/common/data_type.h"
#include "kernels/common/float16.cuh"

namespace ridgeline::kernels::attention {

template <typename T>
inline constexpr DataType kDataTypeOf = DataType::kFloat32;
template <>
inline constexpr DataType kDataTypeOf<__half> = DataType::kFloat16;
template <>
inline constexpr DataType kDataTypeOf<__nv_bfloat16> = DataType::kBFloat16;

// The other one of the 16-bit types.
template <typename T>
using OtherHalf = std::conditional_t<std::is_same_v<T, __half>, __nv_bfloat16, __half>;

__device__ __forceinline__ void StorePair(float* destination, float first, float second) {
  *reinterpret_cast<float2*>(destination) = {first, second};
}
template <typename T>
__device__ __forceinline__ void StorePair(T* destination, float first, float second) {
  *reinterpret_cast<std::uint32_t*>(destination) = PackPair<T>(first, second);
}

template <typename T>
__device__ __forceinline__ void StoreGlobal16(T* destination, const uint4& value) {
  *reinterpret_cast<uint4*>(destination) = value;
}

}  // namespace ridgeline::kernels::attention
