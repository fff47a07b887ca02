// The two ends of the hierarchy: registers, and one thread's chain of dependent loads.
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cached_access.cuh"
#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/rounding.h"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kLinkThreads = 256;

// The value, which the compiler cannot know: a constant would be part of the instruction, and no register would be read.
__device__ __forceinline__ float InRegister(float value, const RegisterParams& params) {
  return params.passes < 0 ? 0.0f : value;
}

template <int kRegisters>
__global__ void __launch_bounds__(kRegisterThreads, 1) RegisterKernel(const __grid_constant__ RegisterParams params) {
  const float factor = InRegister(kRegisterFactor, params), addend = InRegister(kRegisterAddend, params);
  float x[kRegisters];
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) x[i] = static_cast<float>(i);
#pragma unroll 8
  for (std::int64_t pass = 0; pass < params.passes; ++pass) {
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) x[i] = fmaf(factor, x[(i + 1) % kRegisters], addend);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) sum += x[i];
  params.thread_sums[blockIdx.x * kRegisterThreads + threadIdx.x] = sum;
}

__global__ void LinkKernel(const __grid_constant__ LinkParams params) {
  const std::int64_t node = std::int64_t{blockIdx.x} * kLinkThreads + threadIdx.x;
  auto* const nodes = static_cast<char*>(params.nodes);
  if (node == 0) *params.cursor = nodes;
  if (node < params.num_nodes)
    *reinterpret_cast<void**>(nodes + node * params.node_bytes) = nodes + params.next[node] * params.node_bytes;
}

__global__ void ChaseKernel(const __grid_constant__ ChaseParams params) {
  void* node = *params.cursor;
#pragma unroll 16
  for (std::int64_t step = 0; step < params.steps; ++step) node = LoadThroughL1(static_cast<void* const*>(node));
  *params.cursor = node;
}

}  // namespace

CudaStatus LaunchOnCuda(const RegisterParams& params, const CudaSite& site) {
  const LaunchShape shape = {.grid = dim3(site.num_sms), .block = dim3(kRegisterThreads)};
  switch (params.registers) {
    case 2:
      return Launch(RegisterKernel<2>, shape, site.stream, params);
    case 4:
      return Launch(RegisterKernel<4>, shape, site.stream, params);
    case 8:
      return Launch(RegisterKernel<8>, shape, site.stream, params);
    case 16:
      return Launch(RegisterKernel<16>, shape, site.stream, params);
    case 32:
      return Launch(RegisterKernel<32>, shape, site.stream, params);
    default:
      return cudaErrorInvalidValue;
  }
}

CudaStatus LaunchOnCuda(const LinkParams& params, const CudaSite& site) {
  const auto blocks = static_cast<unsigned>(CeilDivide(params.num_nodes, kLinkThreads));
  return Launch(LinkKernel, {.grid = dim3(blocks), .block = dim3(kLinkThreads)}, site.stream, params);
}

CudaStatus LaunchOnCuda(const ChaseParams& params, const CudaSite& site) {
  const cudaError_t error = cudaFuncSetAttribute(ChaseKernel, cudaFuncAttributePreferredSharedMemoryCarveout, 0);
  return error != cudaSuccess ? error : Launch(ChaseKernel, {.grid = dim3(1), .block = dim3(1)}, site.stream, params);
}

}  // namespace ridgeline::kernels::microbench
