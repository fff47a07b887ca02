// cp.async: copies from global to shared memory that pass by the registers (sm_80 and newer). PTX ISA, "Data Movement and
// Conversion Instructions: Asynchronous copy".
#pragma once

#include <cstdint>

namespace ridgeline::kernels {

// 16 bytes, both sides aligned to 16, past the L1 cache. Not `valid`: writes zeros and reads nothing.
__device__ __forceinline__ void CpAsync16(std::uint32_t destination, const void* source, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(destination), "l"(source), "r"(valid ? 16 : 0)
               : "memory");
}

// The same with a policy for the L2 cache, see cache_policy.cuh.
__device__ __forceinline__ void CpAsync16(std::uint32_t destination, const void* source, bool valid, std::uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;\n" ::"r"(destination), "l"(source),
               "r"(valid ? 16 : 0), "l"(policy)
               : "memory");
}

// Closes a group of this thread's copies.
__device__ __forceinline__ void CpAsyncCommit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

// Waits until at most kPending of this thread's groups, the newest, are still under way.
template <int kPending>
__device__ __forceinline__ void CpAsyncWait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

}  // namespace ridgeline::kernels
