// Products by wgmma of operands that lie in shared memory. Two warpgroups fill the matrix unit while each waits for itself.
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/shared_memory.cuh"
#include "kernels/common/tensor_copy.cuh"
#include "kernels/microbench/compute_peak_cuda.h"
#include "kernels/microbench/wgmma_product.cuh"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kMostThreads = 256;

struct SharedStorage {
  alignas(1024) ProductRow a[kWgmmaRows];
  alignas(1024) ProductRow minus_a[kWgmmaRows];
  alignas(1024) ProductRow b[kWgmmaColumns];
};

template <typename T>
__global__ void __launch_bounds__(kMostThreads, 1) WgmmaKernel(const __grid_constant__ MatrixPeakParams params) {
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto& storage = *reinterpret_cast<SharedStorage*>(memory);
  FillRows<T>(storage.a, kWgmmaRows, [](int row) { return PatternValue(row); });
  FillRows<T>(storage.minus_a, kWgmmaRows, [](int row) { return -PatternValue(row); });
  FillRows<T>(storage.b, kWgmmaColumns, [](int row) { return PatternValue(row); });
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
