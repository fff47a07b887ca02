// Multiply-adds of CUDA cores, and products by mma.sync: everything is in registers, a block is on each multiprocessor.
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/mma_types.cuh"
#include "kernels/microbench/compute_peak_cuda.h"
#include "kernels/microbench/matrix_pattern.cuh"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kMostFmaThreads = 1024;
constexpr int kMostMmaThreads = 512;  // 128 registers of each

template <typename T, int kChains>
__global__ void __launch_bounds__(kMostFmaThreads, 1) FmaKernel(const __grid_constant__ CudaFmaParams params) {
  T x[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) x[c] = static_cast<T>(c + 1);
#pragma unroll 16
  for (std::int64_t i = 0; i < params.iterations; ++i) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) x[c] = fma(x[c], static_cast<T>(kFmaFactor), static_cast<T>(kFmaAddend));
  }
  double sum = 0;
#pragma unroll
  for (int c = 0; c < kChains; ++c) sum += static_cast<double>(x[c]);
  params.results[std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x] = sum;
}

template <typename T, int kChains>
__global__ void __launch_bounds__(kMostMmaThreads, 1) MmaKernel(const __grid_constant__ MatrixPeakParams params) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  std::uint32_t a[4], minus_a[4], b[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float value = PatternValue(g + i % 2 * 8);
    a[i] = PatternWord<T>(value, 4 * t + i / 2 * 16);
    minus_a[i] = PatternWord<T>(-value, 4 * t + i / 2 * 16);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) b[i] = PatternWord<T>(PatternValue(g), 4 * t + i * 16);
  SumOf<T> sums[kChains][4];
#pragma unroll
  for (int c = 0; c < kChains; ++c) {
#pragma unroll
    for (SumOf<T>& sum : sums[c]) sum = static_cast<SumOf<T>>(c);
  }
#pragma unroll 4
  for (std::int64_t i = 0; i < params.iterations; ++i) {
#pragma unroll
    for (auto& sum : sums) Mma32Bytes<T>(sum, a, b);
#pragma unroll
    for (auto& sum : sums) Mma32Bytes<T>(sum, minus_a, b);
  }
  const std::int64_t warp = std::int64_t{blockIdx.x} * params.warps + threadIdx.x / 32;
  float* results = params.results + warp * kChains * kMmaRows * kMmaColumns;
#pragma unroll
  for (auto& sum : sums) {
    Mma32Bytes<T>(sum, a, b);
#pragma unroll
    for (int i = 0; i < 4; ++i) results[(g + i / 2 * 8) * kMmaColumns + 2 * t + i % 2] = static_cast<float>(sum[i]);
    results += kMmaRows * kMmaColumns;
  }
}

template <typename Params>
using Kernel = void (*)(Params);

template <typename T>
Kernel<CudaFmaParams> ChooseFma(int chains) {
  return chains == 1 ? FmaKernel<T, 1> : chains == 2 ? FmaKernel<T, 2> : chains == 4 ? FmaKernel<T, 4> : FmaKernel<T, 8>;
}

template <typename T>
Kernel<MatrixPeakParams> ChooseMma(int chains) {
  return chains == 1 ? MmaKernel<T, 1> : chains == 2 ? MmaKernel<T, 2> : chains == 4 ? MmaKernel<T, 4> : MmaKernel<T, 8>;
}

Kernel<MatrixPeakParams> ChooseMma(MatrixType type, int chains) {
  switch (type) {
    case MatrixType::kTf32:
      return ChooseMma<Tf32>(chains);
    case MatrixType::kFloat16:
      return ChooseMma<__half>(chains);
    case MatrixType::kBFloat16:
      return ChooseMma<__nv_bfloat16>(chains);
    case MatrixType::kFloat8E4M3:
      return ChooseMma<__nv_fp8_e4m3>(chains);
    case MatrixType::kFloat8E5M2:
      return ChooseMma<__nv_fp8_e5m2>(chains);
    case MatrixType::kInt8:
      return ChooseMma<std::int8_t>(chains);
  }
  return nullptr;
}

LaunchShape ShapeOf(int warps, const CudaSite& site) { return {.grid = dim3(site.num_sms), .block = dim3(32 * warps)}; }

}  // namespace

CudaStatus LaunchOnCuda(const CudaFmaParams& params, const CudaSite& site) {
  const auto kernel = params.type == FmaType::kFloat32 ? ChooseFma<float>(params.chains) : ChooseFma<double>(params.chains);
  return Launch(kernel, ShapeOf(params.warps, site), site.stream, params);
}

CudaStatus LaunchOnCuda(const MatrixPeakParams& params, const CudaSite& site) {
  if (params.unit == MatrixUnit::kWgmma) return LaunchWgmmaPeak(params, site);
  return Launch(ChooseMma(params.type, params.chains), ShapeOf(params.warps, site), site.stream, params);
}

}  // namespace ridgeline::kernels::microbench
