#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/rounding.h"
#include "kernels/microbench/mlp_backward.h"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__global__ void __launch_bounds__(kThreads) GeluBackwardKernel(GeluBackwardParams params) {
  constexpr float kDensityAtZero = 0.3989422804f;  // 1 / sqrt(2 pi)
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= params.elements) return;
  const float x = params.input[i];
  const float derivative = fmaf(x * kDensityAtZero, expf(-0.5f * x * x), normcdff(x));
  params.input_gradient[i] = params.output_gradient[i] * derivative;
}

// Sums of two values over the block's threads; every thread has them.
__device__ float2 SumForAll(float2 value) {
  constexpr unsigned kAllLanes = 0xffffffff;
  __shared__ float2 warp_sums[kWarps];
  for (int distance = 16; distance > 0; distance /= 2) {
    value.x += __shfl_xor_sync(kAllLanes, value.x, distance);
    value.y += __shfl_xor_sync(kAllLanes, value.y, distance);
  }
  __syncthreads();  // the last sums have been read
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  float2 sum = {0, 0};
  for (int warp = 0; warp < kWarps; ++warp) {
    sum.x += warp_sums[warp].x;
    sum.y += warp_sums[warp].y;
  }
  return sum;
}

// A block has the rows of one partial sum, a thread every kThreads-th column: the sums over rows stay with it.
__global__ void __launch_bounds__(kThreads) LayerNormBackwardKernel(LayerNormBackwardParams params) {
  extern __shared__ float smem_sums[];  // [2, columns]: of weights, of biases
  const auto columns = static_cast<int>(params.columns);
  const auto share = 1.0f / static_cast<float>(columns);
  float* const weight_sums = smem_sums;
  float* const bias_sums = smem_sums + columns;
  for (int i = threadIdx.x; i < columns; i += kThreads) weight_sums[i] = bias_sums[i] = 0;
  const std::int64_t end = params.rows * (blockIdx.x + 1) / kLayerNormPartials;
  for (std::int64_t row = params.rows * blockIdx.x / kLayerNormPartials; row < end; ++row) {
    const float* const x = params.input + row * columns;
    const float* const dy = params.output_gradient + row * columns;
    float* const dx = params.input_gradient + row * columns;
    float2 sums = {0, 0};
    for (int i = threadIdx.x; i < columns; i += kThreads) {
      sums.x += x[i];
      sums.y = fmaf(dy[i], params.weight[i], sums.y);
    }
    sums = SumForAll(sums);
    const float mean = sums.x * share, mean_gradient = sums.y * share;
    sums = {0, 0};
    for (int i = threadIdx.x; i < columns; i += kThreads) {
      const float distance = x[i] - mean;
      sums.x = fmaf(distance, distance, sums.x);
      sums.y = fmaf(dy[i] * params.weight[i], distance, sums.y);
    }
    sums = SumForAll(sums);
    const float factor = 1.0f / sqrtf(fmaf(sums.x, share, params.epsilon));
    const float mean_product = sums.y * share * factor;
    for (int i = threadIdx.x; i < columns; i += kThreads) {
      const float normal = (x[i] - mean) * factor;
      dx[i] = factor * fmaf(-normal, mean_product, fmaf(dy[i], params.weight[i], -mean_gradient));
      weight_sums[i] = fmaf(dy[i], normal, weight_sums[i]);
      bias_sums[i] += dy[i];
    }
  }
  float* const weight_part = params.workspace + blockIdx.x * params.columns;
  float* const bias_part = weight_part + kLayerNormPartials * params.columns;
  for (int i = threadIdx.x; i < columns; i += kThreads) {
    weight_part[i] = weight_sums[i];
    bias_part[i] = bias_sums[i];
  }
}

// A thread adds up one column's parts.
__global__ void __launch_bounds__(kThreads) SumPartsKernel(LayerNormBackwardParams params) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= params.columns) return;
  float weight_sum = 0, bias_sum = 0;
  for (std::int64_t part = 0; part < kLayerNormPartials; ++part) {
    weight_sum += params.workspace[part * params.columns + column];
    bias_sum += params.workspace[(kLayerNormPartials + part) * params.columns + column];
  }
  params.weight_gradient[column] = weight_sum;
  params.bias_gradient[column] = bias_sum;
}

}  // namespace

CudaStatus LaunchOnCuda(const GeluBackwardParams& params, const CudaSite& site) {
  const auto blocks = static_cast<unsigned>(CeilDivide(params.elements, std::int64_t{kThreads}));
  return Launch(GeluBackwardKernel, {.grid = dim3(blocks), .block = dim3(kThreads)}, site.stream, params);
}

CudaStatus LaunchOnCuda(const LayerNormBackwardParams& params, const CudaSite& site) {
  const LaunchShape shape = {.grid = dim3(kLayerNormPartials),
                             .block = dim3(kThreads),
                             .shared_memory_bytes = static_cast<int>(2 * params.columns * sizeof(float))};
  const cudaError_t error = Launch(LayerNormBackwardKernel, shape, site.stream, params);
  if (error != cudaSuccess) return error;
  const auto blocks = static_cast<unsigned>(CeilDivide(params.columns, std::int64_t{kThreads}));
  return Launch(SumPartsKernel, {.grid = dim3(blocks), .block = dim3(kThreads)}, site.stream, params);
}

}  // namespace ridgeline::kernels::microbench
