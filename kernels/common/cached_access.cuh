// Loads that say which caches may serve them, none of which the compiler leaves out, joins or moves across another. PTX ISA,
// "Cache Operators".
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ridgeline::kernels {

// From the L1 cache, the L2 cache or memory: whichever has it.
__device__ __forceinline__ float LoadThroughL1(const float* source) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];\n" : "=f"(value) : "l"(source));
  return value;
}
__device__ __forceinline__ float4 LoadThroughL1(const float4* source) {
  float4 value;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];\n"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(source));
  return value;
}
__device__ __forceinline__ void* LoadThroughL1(void* const* source) {
  void* value;
  asm volatile("ld.global.u64 %0, [%1];\n" : "=l"(value) : "l"(source));
  return value;
}

// From the L2 cache or memory.
__device__ __forceinline__ float LoadPastL1(const float* source) {
  float value;
  asm volatile("ld.global.cg.f32 %0, [%1];\n" : "=f"(value) : "l"(source));
  return value;
}
__device__ __forceinline__ float4 LoadPastL1(const float4* source) {
  float4 value;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];\n"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(source));
  return value;
}

}  // namespace ridgeline::kernels
