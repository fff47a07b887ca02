// Relaxed loads and stores of the device's scope: they see each other's words, and order nothing else. PTX ISA, "ld", "st",
// .relaxed.gpu; "Memory Consistency Model".
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ridgeline::kernels {

__device__ __forceinline__ uint2 LoadRelaxed8(const void* source) {
  uint2 words;
  asm volatile("ld.relaxed.gpu.global.v2.b32 {%0, %1}, [%2];\n" : "=r"(words.x), "=r"(words.y) : "l"(source) : "memory");
  return words;
}

__device__ __forceinline__ uint4 LoadRelaxed16(const void* source) {
  uint4 words;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(source)
               : "memory");
  return words;
}

__device__ __forceinline__ void StoreRelaxed8(void* destination, const uint2& words) {
  asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1, %2};\n" ::"l"(destination), "r"(words.x), "r"(words.y) : "memory");
}

__device__ __forceinline__ void StoreRelaxed16(void* destination, const uint4& words) {
  asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"l"(destination), "r"(words.x), "r"(words.y),
               "r"(words.z), "r"(words.w)
               : "memory");
}

}  // namespace ridgeline::kernels
