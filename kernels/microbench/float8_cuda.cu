#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/rounding.h"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kThreads) ToFloat8Kernel(const __grid_constant__ ToFloat8Params params) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < params.elements) static_cast<T*>(params.destination)[i] = T(params.source[i]);
}

}  // namespace

CudaStatus LaunchOnCuda(const ToFloat8Params& params, const CudaSite& site) {
  const auto kernel = params.type == DataType::kFloat8E4M3 ? ToFloat8Kernel<__nv_fp8_e4m3> : ToFloat8Kernel<__nv_fp8_e5m2>;
  const auto blocks = static_cast<unsigned>(CeilDivide(params.elements, kThreads));
  return Launch(kernel, {.grid = dim3(blocks), .block = dim3(kThreads)}, site.stream, params);
}

}  // namespace ridgeline::kernels::microbench
