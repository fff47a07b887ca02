// Products by wgmma of operands that lie in shared memory. Two warpgroups fill the matrix unit while each waits for itself.
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/shared_memory.cuh"
#include "kernels/common/tensor_copy.cuh"
#include "kernels/common/wgmma_types.cuh"
#include "kernels/microbench/compute_peak_cuda.h"
#include "kernels/microbench/matrix_pattern.cuh"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kMostThreads = 256;
constexpr int kRowBytes = kMatrixStepBytes * kWgmmaTileSteps;
static_assert(kRowBytes == 128, "a row of an operand is a row of the swizzle");

// In the 128-byte swizzle chunks of 16 bytes trade places within a row; in these rows all of them are the same.
struct SharedStorage {
  alignas(1024) std::uint32_t a[kWgmmaRows][kRowBytes / 4];
  alignas(1024) std::uint32_t minus_a[kWgmmaRows][kRowBytes / 4];
  alignas(1024) std::uint32_t b[kWgmmaColumns][kRowBytes / 4];
};

template <typename T>
__device__ __forceinline__ void FillRows(std::uint32_t (*rows)[kRowBytes / 4], int num_rows, float factor) {
  for (int i = static_cast<int>(threadIdx.x); i < num_rows * kRowBytes / 4; i += static_cast<int>(blockDim.x)) {
    const int row = i / (kRowBytes / 4), word = i % (kRowBytes / 4);
    rows[row][word] = PatternWord<T>(factor * PatternValue(row), 4 * word);
  }
}

template <typename T>
__device__ __forceinline__ void AddProduct(SumOf<T> (&sums)[128], WgmmaOperand a, WgmmaOperand b) {
#pragma unroll
  for (int step = 0; step < kWgmmaTileSteps; ++step) {
    Wgmma32Bytes<T>(sums, a.At(step * kMatrixStepBytes), b.At(step * kMatrixStepBytes));
  }
}

template <typename T>
__global__ void __launch_bounds__(kMostThreads, 1) WgmmaKernel(const __grid_constant__ MatrixPeakParams params) {
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto& storage = *reinterpret_cast<SharedStorage*>(memory);
  FillRows<T>(storage.a, kWgmmaRows, 1);
  FillRows<T>(storage.minus_a, kWgmmaRows, -1);
  FillRows<T>(storage.b, kWgmmaColumns, 1);
  SharedToAsyncFence();
  __syncthreads();
  const WgmmaOperand a(SharedAddress(storage.a), 0), minus_a(SharedAddress(storage.minus_a), 0), b(SharedAddress(storage.b), 0);
  SumOf<T> sums[128] = {};
  for (std::int64_t i = 0; i < params.iterations; ++i) {
    WgmmaFence();
    AddProduct<T>(sums, a, b);
    AddProduct<T>(sums, minus_a, b);
    WgmmaCommit();
    WgmmaWait<0>();
  }
  WgmmaFence();
  AddProduct<T>(sums, a, b);
  WgmmaCommit();
  WgmmaWait<0>();

  const int warpgroup = static_cast<int>(threadIdx.x) / 128, warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t tile = std::int64_t{blockIdx.x} * (blockDim.x / 128) + warpgroup;
  float* const results = params.results + (tile * kWgmmaRows + warp * 16 + lane / 4) * kWgmmaColumns + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 128; ++i) {
    results[i / 2 % 2 * 8 * kWgmmaColumns + i / 4 * 8 + i % 2] = static_cast<float>(sums[i]);
  }
}

using Kernel = void (*)(MatrixPeakParams);

Kernel ChooseKernel(MatrixType type) {
  switch (type) {
    case MatrixType::kTf32:
      return WgmmaKernel<Tf32>;
    case MatrixType::kFloat16:
      return WgmmaKernel<__half>;
    case MatrixType::kBFloat16:
      return WgmmaKernel<__nv_bfloat16>;
    case MatrixType::kFloat8E4M3:
      return WgmmaKernel<__nv_fp8_e4m3>;
    case MatrixType::kFloat8E5M2:
      return WgmmaKernel<__nv_fp8_e5m2>;
    case MatrixType::kInt8:
      return WgmmaKernel<std::int8_t>;
  }
  return nullptr;
}

}  // namespace

CudaStatus LaunchWgmmaPeak(const MatrixPeakParams& params, const CudaSite& site) {
  const LaunchShape shape = {.grid = dim3(site.num_sms),
                             .block = dim3(32 * params.warps),
                             .shared_memory_bytes = static_cast<int>(sizeof(SharedStorage))};
  return Launch(ChooseKernel(params.type), shape, site.stream, params);
}

}  // namespace ridgeline::kernels::microbench
