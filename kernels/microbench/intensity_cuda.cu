// Arithmetic of a chosen intensity over an array that is read once. A thread holds kWords words of four elements at a time,
// which stay in registers for as many multiply-adds as are asked for:
//
//   granules ──kJoin words──► m = their maximum ──► y = 0.5 y + m, again and again ──► sum
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/microbench/block_sum.cuh"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kThreads = 1024;
constexpr int kWords = 4;  // in flight: 64 KiB of a block, which hides the memory's latency
static_assert(kIntensityGranule == 4 * kThreads, "without joining, a block's threads have one word each of a granule");

__device__ __forceinline__ float4 Maximum(const float4& a, const float4& b) {
  return {fmaxf(a.x, b.x), fmaxf(a.y, b.y), fmaxf(a.z, b.z), fmaxf(a.w, b.w)};
}

__device__ __forceinline__ float4 HalfPlus(const float4& y, const float4& m) {
  return {fmaf(0.5f, y.x, m.x), fmaf(0.5f, y.y, m.y), fmaf(0.5f, y.z, m.z), fmaf(0.5f, y.w, m.w)};
}

__device__ __forceinline__ float4 Add(const float4& sum, const float4& y) {
  return {sum.x + y.x, sum.y + y.y, sum.z + y.z, sum.w + y.w};
}

__device__ __forceinline__ float4 AddWeighted(const float4& sum, const float4& y) {
  return {fmaf(kIntensityWeight, y.x, sum.x), fmaf(kIntensityWeight, y.y, sum.y), fmaf(kIntensityWeight, y.z, sum.z),
          fmaf(kIntensityWeight, y.w, sum.w)};
}

// The maximum of this thread's kJoin words of a granule; 0, whose sum is 0, where there is none.
template <int kJoin>
__device__ __forceinline__ float4 LoadJoined(const float4* source, std::int64_t granule, std::int64_t end) {
  constexpr int kSpan = kThreads / kJoin;  // words
  if (granule >= end) return {};
  const float4* const from = source + granule * kThreads + threadIdx.x % kSpan;
  float4 joined = __ldcs(from);
#pragma unroll
  for (int j = 1; j < kJoin; ++j) joined = Maximum(joined, __ldcs(from + j * kSpan));
  return joined;
}

template <int kJoin, bool kAddsOnly>
__global__ void __launch_bounds__(kThreads, 1) IntensityKernel(const __grid_constant__ IntensityParams params) {
  constexpr int kJoined = kWords / kJoin;
  const auto* const source = reinterpret_cast<const float4*>(params.source);
  const std::int64_t num_granules = params.elements / kIntensityGranule;
  const std::int64_t end = num_granules * (blockIdx.x + 1) / gridDim.x;
  float4 sums[kJoined] = {};
  // The threads that share a granule's span follow each other, kJoin granules side by side.
  std::int64_t granule = num_granules * blockIdx.x / gridDim.x + threadIdx.x / (kThreads / kJoin);
  for (; granule < end; granule += kWords) {
    float4 m[kJoined], y[kJoined];
#pragma unroll
    for (int i = 0; i < kJoined; ++i) y[i] = m[i] = LoadJoined<kJoin>(source, granule + i * kJoin, end);
#pragma unroll 8
    for (std::int64_t step = 0; step < params.multiply_adds; ++step) {
#pragma unroll
      for (int i = 0; i < kJoined; ++i) y[i] = HalfPlus(y[i], m[i]);
    }
#pragma unroll
    for (int i = 0; i < kJoined; ++i) sums[i] = kAddsOnly ? Add(sums[i], y[i]) : AddWeighted(sums[i], y[i]);
  }
  float total = 0;
#pragma unroll
  for (const float4& sum : sums) total += sum.x + sum.y + (sum.z + sum.w);
  total = SumOfBlock(total);
  if (threadIdx.x == 0) params.slice_sums[blockIdx.x] = total;
}

template <int kJoin>
cudaError_t LaunchJoined(const IntensityParams& params, const CudaSite& site) {
  const auto kernel = params.adds_only ? IntensityKernel<kJoin, true> : IntensityKernel<kJoin, false>;
  return Launch(kernel, {.grid = dim3(site.num_sms), .block = dim3(kThreads)}, site.stream, params);
}

}  // namespace

CudaStatus LaunchOnCuda(const IntensityParams& params, const CudaSite& site) {
  if (params.join == 1) return LaunchJoined<1>(params, site);
  return params.join == 2 ? LaunchJoined<2>(params, site) : LaunchJoined<4>(params, site);
}

}  // namespace ridgeline::kernels::microbench
