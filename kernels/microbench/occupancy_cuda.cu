#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/microbench/occupancy.h"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kWarpThreads = 32;

__device__ __forceinline__ unsigned MultiprocessorId() {
  unsigned id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id % kMostMultiprocessors;
}

// Counts a block in, and out with the most that it has seen. The count is looked at when the block has done its work: the
// atomics' way to memory and back delays nothing.
class Presence {
 public:
  __device__ explicit Presence(std::int32_t* resident) : now_(resident + MultiprocessorId()) {
    if (threadIdx.x == 0) seen_ = atomicAdd(now_, Warps()) + Warps();
  }
  __device__ void Leave() {
    __syncthreads();
    if (threadIdx.x != 0) return;
    atomicMax(now_ + kMostMultiprocessors, seen_);
    atomicSub(now_, Warps());
  }

 private:
  __device__ static std::int32_t Warps() { return static_cast<std::int32_t>(blockDim.x / kWarpThreads); }

  std::int32_t* const now_;
  std::int32_t seen_ = 0;
};

// Values from shared memory that stay in registers until Sum: loads of volatile memory can neither be put off nor repeated.
template <int kCount>
class Ballast {
 public:
  __device__ Ballast() {
    if constexpr (kCount > 0) {
      __shared__ volatile float memory[kCount];
      for (int i = static_cast<int>(threadIdx.x); i < kCount; i += static_cast<int>(blockDim.x)) memory[i] = 0;
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kCount; ++i) values_[i] = memory[i];
    }
  }
  __device__ float Sum() const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum += values_[i];
    return sum;
  }

 private:
  float values_[kCount > 0 ? kCount : 1];
};

// What a thread loads lies a warp's width apart, so that a warp reads whole lines.
template <int kIndependent>
__device__ __forceinline__ float SumLoads(const OccupancyParams& params, std::int64_t warp) {
  const auto* from =
      reinterpret_cast<const float4*>(params.source) + warp * params.steps * kWarpThreads + threadIdx.x % kWarpThreads;
  float sum = 0;
  for (std::int64_t step = 0; step < params.steps; step += kIndependent) {
    float4 loaded[kIndependent];
#pragma unroll
    for (int i = 0; i < kIndependent; ++i) loaded[i] = __ldcs(from + i * kWarpThreads);
    float last = 0;
#pragma unroll
    for (int i = 0; i < kIndependent; ++i) last += (loaded[i].x + loaded[i].y) + (loaded[i].z + loaded[i].w);
    sum += last;
    // Inputs are far smaller: the address goes on by the same step, but the compiler can't know it before the data is there.
    from += (last < 1e30f ? kIndependent : 0) * kWarpThreads;
  }
  return sum;
}

// Enough multiply-adds for one turn of the loop that the turn itself is a small part.
constexpr int kUnrolled = 32;

template <int kIndependent>
__device__ __forceinline__ float RunChains(const OccupancyParams& params) {
  float x[kIndependent];
#pragma unroll
  for (int c = 0; c < kIndependent; ++c) x[c] = static_cast<float>(c + 1);
#pragma unroll(kUnrolled / kIndependent)
  for (std::int64_t step = 0; step < params.steps; step += kIndependent) {
#pragma unroll
    for (int c = 0; c < kIndependent; ++c) x[c] = fmaf(x[c], kOccupancyFactor, kOccupancyAddend);
  }
  float sum = 0;
#pragma unroll
  for (int c = 0; c < kIndependent; ++c) sum += x[c];
  return sum;
}

template <OccupancyWork kWork, int kIndependent, int kBallast>
__device__ __forceinline__ void RunBlock(const OccupancyParams& params) {
  Presence presence(params.resident);
  const Ballast<kBallast> ballast;
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t warp = thread / kWarpThreads;
  if (warp < params.num_warps) {
    const float sum = kWork == OccupancyWork::kLoads ? SumLoads<kIndependent>(params, warp) : RunChains<kIndependent>(params);
    params.sums[thread] = sum + ballast.Sum();
  }
  presence.Leave();
}

template <OccupancyWork kWork, int kIndependent>
__global__ void __launch_bounds__(32 * kWarpThreads) SharedMemoryKernel(OccupancyParams params) {
  RunBlock<kWork, kIndependent, 0>(params);
}

// Values that a thread holds beside its work's own, so that registers for `warps` warps and no more are there.
constexpr int BallastFor(OccupancyWork work, int warps) {
  const bool loads = work == OccupancyWork::kLoads;
  switch (warps) {
    case 8:
      return loads ? 168 : 190;
    case 16:
      return loads ? 92 : 100;
    case 32:
      return loads ? 42 : 46;
    default:
      return 0;  // the work's own are enough
  }
}

template <OccupancyWork kWork, int kIndependent, int kWarps>
__global__ void __launch_bounds__(kRegisterBlockWarps* kWarpThreads, kWarps / kRegisterBlockWarps)
    RegisterKernel(OccupancyParams params) {
  RunBlock<kWork, kIndependent, BallastFor(kWork, kWarps)>(params);
}

using Kernel = void (*)(OccupancyParams);

template <OccupancyWork kWork, int kIndependent>
Kernel KernelFor(const OccupancyParams& params) {
  if (params.limit != OccupancyLimit::kRegisters) return SharedMemoryKernel<kWork, kIndependent>;
  switch (params.warps) {
    case 8:
      return RegisterKernel<kWork, kIndependent, 8>;
    case 16:
      return RegisterKernel<kWork, kIndependent, 16>;
    case 32:
      return RegisterKernel<kWork, kIndependent, 32>;
    default:
      return RegisterKernel<kWork, kIndependent, 64>;
  }
}

Kernel KernelFor(const OccupancyParams& params) {
  if (params.work == OccupancyWork::kLoads) {
    return params.independent == 1 ? KernelFor<OccupancyWork::kLoads, 1>(params) : KernelFor<OccupancyWork::kLoads, 4>(params);
  }
  return params.independent == 1 ? KernelFor<OccupancyWork::kMultiplyAdds, 1>(params)
                                 : KernelFor<OccupancyWork::kMultiplyAdds, 4>(params);
}

cudaError_t Attribute(cudaDeviceAttr attribute, int device, int& value) {
  return cudaDeviceGetAttribute(&value, attribute, device);
}

// Shared memory of one block, such that `blocks` of them and no more fit a multiprocessor.
cudaError_t SharedMemoryBytes(int blocks, int& bytes) {
  int device = 0, of_multiprocessor = 0, reserved = 0, of_block = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = Attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, device, of_multiprocessor);
  }
  if (error == cudaSuccess) error = Attribute(cudaDevAttrReservedSharedMemoryPerBlock, device, reserved);
  if (error == cudaSuccess) error = Attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device, of_block);
  constexpr int kGranule = 128;  // in which shared memory is given
  bytes = std::min(of_multiprocessor / blocks / kGranule * kGranule - reserved, of_block);
  return error;
}

}  // namespace

CudaStatus LaunchOnCuda(const OccupancyParams& params, const CudaSite& site) {
  const Kernel kernel = KernelFor(params);
  const int block_warps = OccupancyBlockWarps(params.limit, params.warps);
  LaunchShape shape = {.grid = dim3(static_cast<unsigned>((params.num_warps + block_warps - 1) / block_warps)),
                       .block = dim3(static_cast<unsigned>(block_warps * kWarpThreads))};
  if (params.limit != OccupancyLimit::kRegisters) {
    const int resident = params.limit == OccupancyLimit::kGrid ? kWaveWarps : params.warps;
    const cudaError_t error = SharedMemoryBytes(resident / block_warps, shape.shared_memory_bytes);
    if (error != cudaSuccess) return error;
  }
  // All of the memory that L1 and shared memory have in common, whatever a block asks for: L1 is the same at every point.
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (error != cudaSuccess) return error;
  return Launch(kernel, shape, site.stream, params);
}

}  // namespace ridgeline::kernels::microbench
