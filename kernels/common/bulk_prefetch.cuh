// cp.async.bulk.prefetch: asks the L2 cache for a stretch of global memory that will be wanted soon (sm_90). PTX ISA, "Data
// Movement and Conversion Instructions: cp.async.bulk.prefetch".
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ridgeline::kernels {

// Address and size are multiples of 16 bytes. One thread issues it; there is nothing to wait for.
__device__ __forceinline__ void BulkPrefetch(const void* source, std::uint32_t size_bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(source), "r"(size_bytes) : "memory");
}

}  // namespace ridgeline::kernels
