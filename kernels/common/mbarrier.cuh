// mbarrier: barriers in shared memory that count arrivals and, for asynchronous copies, bytes (sm_90). PTX ISA, "Parallel
// Synchronization and Communication Instructions: mbarrier". A barrier's phases end one after the other; who waits names the
// parity of the phase that is to end: 0 for the first, 1 for the second, and so on. Waiting for parity 1 of a fresh barrier
// returns at once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ridgeline::kernels {

// Barriers are named by their 32-bit shared address; they are 8 bytes, aligned to 8.
__device__ __forceinline__ void MBarrierInit(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Between the initialisation and a __syncthreads(): makes it visible to asynchronous copies.
__device__ __forceinline__ void MBarrierInitFence() { asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory"); }

__device__ __forceinline__ void MBarrierArrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

// The same without a branch: for one lane of a warp, where others must not part from it.
__device__ __forceinline__ void MBarrierArriveIf(bool arrives, std::uint32_t barrier) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.s32 p, %0, 0;\n@p mbarrier.arrive.shared::cta.b64 _, [%1];\n}\n" ::"r"(arrives ? 1 : 0),
      "r"(barrier)
      : "memory");
}

// Lets the phase wait for so many more bytes of copies.
__device__ __forceinline__ void MBarrierExpect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
}

// Arrives, and lets the phase wait for so many more bytes of copies.
__device__ __forceinline__ void MBarrierArriveExpecting(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ bool MBarrierTryWait(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t has_ended;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
               : "=r"(has_ended)
               : "r"(barrier), "r"(parity)
               : "memory");
  return has_ended != 0;
}

__device__ __forceinline__ void MBarrierWait(std::uint32_t barrier, std::uint32_t parity) {
  while (!MBarrierTryWait(barrier, parity)) {
  }
}

// The same for who has time: looks now and then, and leaves the issue slots to others.
__device__ __forceinline__ void MBarrierWaitAtEase(std::uint32_t barrier, std::uint32_t parity) {
  constexpr unsigned kNanoseconds = 100;
  while (!MBarrierTryWait(barrier, parity)) __nanosleep(kNanoseconds);
}

}  // namespace ridgeline::kernels
