// mma.sync: D[16,8] += A[16,K] · B[K,8] by one warp, whose K is 32 bytes of any type (sm_80, 8-bit floats sm_89). PTX ISA,
// "Matrix fragments for mma.m16n8k8", "mma.m16n8k16", "mma.m16n8k32". With g = lane / 4 and t = lane % 4, a lane holds of each
// row of A and column of B
//
//   A: a[0] row g, a[1] row g+8, bytes 4t to 4t+3;  a[2] row g, a[3] row g+8, bytes 4t+16 to 4t+19
//   B: b[0] bytes 4t to 4t+3, b[1] bytes 4t+16 to 4t+19, of column g
//   D: d[0], d[1] row g, d[2], d[3] row g+8, columns 2t, 2t+1
//
// mma.cuh has the 16-bit types alone, with B's registers apart, as attention uses them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "kernels/common/matrix_types.cuh"

namespace ridgeline::kernels {

#define RIDGELINE_MMA(shape, types, constraint)                                                         \
  asm volatile("mma.sync.aligned." shape ".row.col." types                                              \
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"                     \
               : "+" constraint(d[0]), "+" constraint(d[1]), "+" constraint(d[2]), "+" constraint(d[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <typename T>
__device__ __forceinline__ void Mma32Bytes(SumOf<T> (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, Tf32>) RIDGELINE_MMA("m16n8k8", "f32.tf32.tf32.f32", "f");
  if constexpr (std::is_same_v<T, __half>) RIDGELINE_MMA("m16n8k16", "f32.f16.f16.f32", "f");
  if constexpr (std::is_same_v<T, __nv_bfloat16>) RIDGELINE_MMA("m16n8k16", "f32.bf16.bf16.f32", "f");
  if constexpr (std::is_same_v<T, std::int8_t>) RIDGELINE_MMA("m16n8k32", "s32.s8.s8.s32", "r");
#if __CUDA_ARCH__ >= 890
  if constexpr (std::is_same_v<T, __nv_fp8_e4m3>) RIDGELINE_MMA("m16n8k32", "f32.e4m3.e4m3.f32", "f");
  if constexpr (std::is_same_v<T, __nv_fp8_e5m2>) RIDGELINE_MMA("m16n8k32", "f32.e5m2.e5m2.f32", "f");
#endif
}

#undef RIDGELINE_MMA

}  // namespace ridgeline::kernels
