#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/microbench/divergence.h"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kWarpThreads = 32;
constexpr int kThreads = kDivergenceBlockWarps * kWarpThreads;

template <int kPath>
__device__ __forceinline__ float RunPath(std::int64_t iterations) {
  float x = 1;
#pragma unroll 16
  for (std::int64_t i = 0; i < iterations; ++i) x = fmaf(x, kPathFactor, PathAddend(kPath));
  return x;
}

// Paths one after the other, each with its own code: the compiler can't make one of them.
template <int kPath>
__device__ __forceinline__ float TakePath(int path, std::int64_t iterations) {
  if constexpr (kPath + 1 < kMaxPaths) {
    if (path != kPath) return TakePath<kPath + 1>(path, iterations);
  }
  return RunPath<kPath>(iterations);
}

__global__ void __launch_bounds__(kThreads) DivergenceKernel(DivergenceParams params) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t chooser = params.aligned_to_warps ? thread / kWarpThreads : thread;
  params.results[thread] = TakePath<0>(static_cast<int>(chooser % params.paths), params.iterations);
}

}  // namespace

CudaStatus LaunchOnCuda(const DivergenceParams& params, const CudaSite& site) {
  const auto num_blocks = static_cast<unsigned>(params.num_warps / kDivergenceBlockWarps);
  return Launch(DivergenceKernel, {.grid = dim3(num_blocks), .block = dim3(kThreads)}, site.stream, params);
}

}  // namespace ridgeline::kernels::microbench
