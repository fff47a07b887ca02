// cp.async.bulk: the copy engine moves a stretch of memory to shared memory while threads do something else (sm_90). PTX ISA,
// "Data Movement and Conversion Instructions: cp.async.bulk".
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ridgeline::kernels {

// Queues the copy; its bytes count for `barrier`. Addresses and size are multiples of 16 bytes. One thread issues it.
__device__ __forceinline__ void BulkLoad(std::uint32_t destination, const void* source, std::uint32_t size_bytes,
                                         std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(destination),
               "l"(source), "r"(size_bytes), "r"(barrier)
               : "memory");
}

}  // namespace ridgeline::kernels
