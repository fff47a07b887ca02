// The special function unit's own functions: one instruction each where the library's spend several on the last bit and on
// subnormal numbers.
#pragma once

#include <cuda_runtime.h>

namespace ridgeline::kernels {

// 2^x within 2 ulp; what is below 2^-126 is 0. PTX ISA, ex2.approx.ftz.f32.
__device__ __forceinline__ float ApproximateExp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x within 1 ulp; 0 for infinities and for x of 2^126 and more, infinite for subnormal x. PTX ISA, rcp.approx.ftz.f32.
__device__ __forceinline__ float ApproximateReciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace ridgeline::kernels
