// bar.sync, bar.arrive: barriers among some warps of a block. PTX ISA, "Parallel Synchronization and Communication
// Instructions: bar".
#pragma once

namespace ridgeline::kernels {

// Waits for `num_threads` threads, whole warps, at barrier `idx`, 1 to 15; __syncthreads() has barrier 0. Orders their memory
// accesses like __syncthreads().
__device__ __forceinline__ void NamedBarrierSync(int idx, int num_threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(idx), "r"(num_threads) : "memory");
}

// Arrives for those who wait there with NamedBarrierSync, and goes on. `num_threads` counts both sides.
__device__ __forceinline__ void NamedBarrierArrive(int idx, int num_threads) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(idx), "r"(num_threads) : "memory");
}

}  // namespace ridgeline::kernels
