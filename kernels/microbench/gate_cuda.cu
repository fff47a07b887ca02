#include "kernels/microbench/gate_cuda.h"

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"

namespace ridgeline::kernels::microbench {
namespace {

constexpr std::uint64_t kMostNanoseconds = 3'000'000;
constexpr unsigned kPauseNanoseconds = 200;

// PTX ISA, "Special Registers: %globaltimer".
__device__ __forceinline__ std::uint64_t Nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;\n" : "=l"(now));
  return now;
}

__global__ void GateKernel(const volatile std::uint32_t* opened, std::uint32_t ticket) {
  const std::uint64_t end = Nanoseconds() + kMostNanoseconds;
  while (*opened < ticket && Nanoseconds() < end) __nanosleep(kPauseNanoseconds);
}

}  // namespace

cudaError_t LaunchGate(const std::uint32_t* opened, std::uint32_t ticket, cudaStream_t stream) {
  return Launch(GateKernel, {.grid = dim3(1), .block = dim3(1)}, stream, opened, ticket);
}

}  // namespace ridgeline::kernels::microbench
