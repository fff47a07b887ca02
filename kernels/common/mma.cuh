// mma.sync.m16n8k16: D[16,8] += A[16,16] · B[16,8] by one warp, 16-bit inputs, float32 sums (sm_80 and newer). PTX ISA,
// "Matrix fragments for mma.m16n8k16 with floating point type". With g = lane / 4 and t = lane % 4, a lane holds
//
//   A: a[0] row g, a[1] row g+8, columns 2t, 2t+1;  a[2] row g, a[3] row g+8, columns 2t+8, 2t+9
//   B: b0 rows 2t, 2t+1, b1 rows 2t+8, 2t+9, column g
//   D: d[0], d[1] row g, d[2], d[3] row g+8, columns 2t, 2t+1
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace ridgeline::kernels {

template <typename T>
__device__ __forceinline__ void Mma16816(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>, "mma.m16n8k16 takes 16-bit floats");
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

}  // namespace ridgeline::kernels
