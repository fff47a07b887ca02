// wgmma of every type: D[64,256] += A[64,K] · B[256,K]ᵀ by a warpgroup, whose K is 32 bytes, both operands K-major in shared
// memory (sm_90a). See wgmma.cuh for D's fragments, the operands, and the fences; here K-major is the only order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/common/matrix_types.cuh"
#include "kernels/common/wgmma.cuh"

namespace ridgeline::kernels {

#define RIDGELINE_REGISTERS                          \
  "%0, %1, %2, %3, %4, %5, %6, %7, "                 \
  "%8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, "         \
  "%24, %25, %26, %27, %28, %29, %30, %31, "         \
  "%32, %33, %34, %35, %36, %37, %38, %39, "         \
  "%40, %41, %42, %43, %44, %45, %46, %47, "         \
  "%48, %49, %50, %51, %52, %53, %54, %55, "         \
  "%56, %57, %58, %59, %60, %61, %62, %63, "         \
  "%64, %65, %66, %67, %68, %69, %70, %71, "         \
  "%72, %73, %74, %75, %76, %77, %78, %79, "         \
  "%80, %81, %82, %83, %84, %85, %86, %87, "         \
  "%88, %89, %90, %91, %92, %93, %94, %95, "         \
  "%96, %97, %98, %99, %100, %101, %102, %103, "     \
  "%104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, " \
  "%120, %121, %122, %123, %124, %125, %126, %127"
#define RIDGELINE_OUTPUTS(constraint)                                                                                         \
  "+" constraint(d[0]), "+" constraint(d[1]), "+" constraint(d[2]), "+" constraint(d[3]), "+" constraint(d[4]),               \
      "+" constraint(d[5]), "+" constraint(d[6]), "+" constraint(d[7]), "+" constraint(d[8]), "+" constraint(d[9]),           \
      "+" constraint(d[10]), "+" constraint(d[11]), "+" constraint(d[12]), "+" constraint(d[13]), "+" constraint(d[14]),      \
      "+" constraint(d[15]), "+" constraint(d[16]), "+" constraint(d[17]), "+" constraint(d[18]), "+" constraint(d[19]),      \
      "+" constraint(d[20]), "+" constraint(d[21]), "+" constraint(d[22]), "+" constraint(d[23]), "+" constraint(d[24]),      \
      "+" constraint(d[25]), "+" constraint(d[26]), "+" constraint(d[27]), "+" constraint(d[28]), "+" constraint(d[29]),      \
      "+" constraint(d[30]), "+" constraint(d[31]), "+" constraint(d[32]), "+" constraint(d[33]), "+" constraint(d[34]),      \
      "+" constraint(d[35]), "+" constraint(d[36]), "+" constraint(d[37]), "+" constraint(d[38]), "+" constraint(d[39]),      \
      "+" constraint(d[40]), "+" constraint(d[41]), "+" constraint(d[42]), "+" constraint(d[43]), "+" constraint(d[44]),      \
      "+" constraint(d[45]), "+" constraint(d[46]), "+" constraint(d[47]), "+" constraint(d[48]), "+" constraint(d[49]),      \
      "+" constraint(d[50]), "+" constraint(d[51]), "+" constraint(d[52]), "+" constraint(d[53]), "+" constraint(d[54]),      \
      "+" constraint(d[55]), "+" constraint(d[56]), "+" constraint(d[57]), "+" constraint(d[58]), "+" constraint(d[59]),      \
      "+" constraint(d[60]), "+" constraint(d[61]), "+" constraint(d[62]), "+" constraint(d[63]), "+" constraint(d[64]),      \
      "+" constraint(d[65]), "+" constraint(d[66]), "+" constraint(d[67]), "+" constraint(d[68]), "+" constraint(d[69]),      \
      "+" constraint(d[70]), "+" constraint(d[71]), "+" constraint(d[72]), "+" constraint(d[73]), "+" constraint(d[74]),      \
      "+" constraint(d[75]), "+" constraint(d[76]), "+" constraint(d[77]), "+" constraint(d[78]), "+" constraint(d[79]),      \
      "+" constraint(d[80]), "+" constraint(d[81]), "+" constraint(d[82]), "+" constraint(d[83]), "+" constraint(d[84]),      \
      "+" constraint(d[85]), "+" constraint(d[86]), "+" constraint(d[87]), "+" constraint(d[88]), "+" constraint(d[89]),      \
      "+" constraint(d[90]), "+" constraint(d[91]), "+" constraint(d[92]), "+" constraint(d[93]), "+" constraint(d[94]),      \
      "+" constraint(d[95]), "+" constraint(d[96]), "+" constraint(d[97]), "+" constraint(d[98]), "+" constraint(d[99]),      \
      "+" constraint(d[100]), "+" constraint(d[101]), "+" constraint(d[102]), "+" constraint(d[103]), "+" constraint(d[104]), \
      "+" constraint(d[105]), "+" constraint(d[106]), "+" constraint(d[107]), "+" constraint(d[108]), "+" constraint(d[109]), \
      "+" constraint(d[110]), "+" constraint(d[111]), "+" constraint(d[112]), "+" constraint(d[113]), "+" constraint(d[114]), \
      "+" constraint(d[115]), "+" constraint(d[116]), "+" constraint(d[117]), "+" constraint(d[118]), "+" constraint(d[119]), \
      "+" constraint(d[120]), "+" constraint(d[121]), "+" constraint(d[122]), "+" constraint(d[123]), "+" constraint(d[124]), \
      "+" constraint(d[125]), "+" constraint(d[126]), "+" constraint(d[127])
#define RIDGELINE_WGMMA(shape, types, constraint, options)                                                                \
  asm volatile("wgmma.mma_async.sync.aligned.m64n256" shape "." types " {" RIDGELINE_REGISTERS "}, %128, %129, 1" options \
               ";\n"                                                                                                      \
               : RIDGELINE_OUTPUTS(constraint)                                                                            \
               : "l"(a.bits()), "l"(b.bits()))

template <typename T>
__device__ __forceinline__ void Wgmma32Bytes(SumOf<T> (&d)[128], WgmmaOperand a, WgmmaOperand b) {
  if constexpr (std::is_same_v<T, Tf32>) RIDGELINE_WGMMA("k8", "f32.tf32.tf32", "f", ", 1, 1");
  if constexpr (std::is_same_v<T, __half>) RIDGELINE_WGMMA("k16", "f32.f16.f16", "f", ", 1, 1, 0, 0");
  if constexpr (std::is_same_v<T, __nv_bfloat16>) RIDGELINE_WGMMA("k16", "f32.bf16.bf16", "f", ", 1, 1, 0, 0");
  if constexpr (std::is_same_v<T, __nv_fp8_e4m3>) RIDGELINE_WGMMA("k32", "f32.e4m3.e4m3", "f", ", 1, 1");
  if constexpr (std::is_same_v<T, __nv_fp8_e5m2>) RIDGELINE_WGMMA("k32", "f32.e5m2.e5m2", "f", ", 1, 1");
  if constexpr (std::is_same_v<T, std::int8_t>) RIDGELINE_WGMMA("k32", "s32.s8.s8", "r", "");
}

#undef RIDGELINE_REGISTERS
#undef RIDGELINE_OUTPUTS
#undef RIDGELINE_WGMMA

}  // namespace ridgeline::kernels
