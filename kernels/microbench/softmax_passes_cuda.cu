// Softmax by a block a row, which reads the row three times, twice, or once into shared memory.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/rounding.h"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kUnroll = 4;  // words of four elements in flight of one thread

__device__ __forceinline__ float Larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ float Plus(float a, float b) { return a + b; }

// combine over the values of all threads, for every thread. `neutral` changes nothing.
template <float (*kCombine)(float, float)>
__device__ __forceinline__ float OverBlock(float value, float neutral) {
  constexpr unsigned kAllLanes = 0xffffffff;
  __shared__ float of_warps[32];
  const int lane = static_cast<int>(threadIdx.x) % 32, num_warps = static_cast<int>(blockDim.x) / 32;
  for (int distance = 16; distance > 0; distance /= 2) value = kCombine(value, __shfl_xor_sync(kAllLanes, value, distance));
  __syncthreads();  // what was combined before has been read
  if (lane == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = lane < num_warps ? of_warps[lane] : neutral;
  for (int distance = 16; distance > 0; distance /= 2) value = kCombine(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

__device__ __forceinline__ float Largest(const float4& word) { return fmaxf(fmaxf(word.x, word.y), fmaxf(word.z, word.w)); }
__device__ __forceinline__ float4 Exp(const float4& word, float maximum) {
  return {__expf(word.x - maximum), __expf(word.y - maximum), __expf(word.z - maximum), __expf(word.w - maximum)};
}
__device__ __forceinline__ float Total(const float4& word) { return word.x + word.y + (word.z + word.w); }
__device__ __forceinline__ float4 Scaled(const float4& word, float factor) {
  return {word.x * factor, word.y * factor, word.z * factor, word.w * factor};
}

// Calls use(i, words[i]) for this thread's share, kUnroll loads at a time.
template <typename Use>
__device__ __forceinline__ void ForWords(const float4* words, std::int64_t num_words, const Use& use) {
  const std::int64_t step = blockDim.x;
  std::int64_t i = threadIdx.x;
  for (; i + (kUnroll - 1) * step < num_words; i += kUnroll * step) {
    float4 loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) loaded[u] = words[i + u * step];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) use(i + u * step, loaded[u]);
  }
  for (; i < num_words; i += step) use(i, words[i]);
}

struct MaximumAndSum {
  float maximum, sum;  // of exp(x - maximum)
};

// One pass: this thread's sum is scaled down whenever its maximum grows; the threads meet at the end.
__device__ __forceinline__ MaximumAndSum OnlineMaximumAndSum(const float4* row, std::int64_t num_words) {
  MaximumAndSum own = {-INFINITY, 0};
  ForWords(row, num_words, [&](std::int64_t /*i*/, const float4& word) {
    const float largest = Largest(word);
    if (largest > own.maximum) {
      own.sum *= __expf(own.maximum - largest);
      own.maximum = largest;
    }
    own.sum += Total(Exp(word, own.maximum));
  });
  const float maximum = OverBlock<Larger>(own.maximum, -INFINITY);
  // Of a thread that had no element, exp(-inf) times 0.
  return {maximum, OverBlock<Plus>(own.sum * __expf(own.maximum - maximum), 0)};
}

__device__ __forceinline__ MaximumAndSum MaximumThenSum(const float4* row, std::int64_t num_words) {
  float maximum = -INFINITY;
  ForWords(row, num_words, [&](std::int64_t /*i*/, const float4& word) { maximum = fmaxf(maximum, Largest(word)); });
  maximum = OverBlock<Larger>(maximum, -INFINITY);
  float sum = 0;
  ForWords(row, num_words, [&](std::int64_t /*i*/, const float4& word) { sum += Total(Exp(word, maximum)); });
  return {maximum, OverBlock<Plus>(sum, 0)};
}

__device__ __forceinline__ void WriteSoftmax(const float4* row, std::int64_t num_words, const MaximumAndSum& of,
                                             float4* output) {
  const float factor = 1 / of.sum;
  ForWords(row, num_words,
           [&](std::int64_t i, const float4& word) { __stcs(output + i, Scaled(Exp(word, of.maximum), factor)); });
}

template <SoftmaxPasses kPasses>
__global__ void __launch_bounds__(kMostThreads) SoftmaxKernel(const __grid_constant__ SoftmaxPassesParams params) {
  extern __shared__ float4 held[];
  const std::int64_t num_words = params.columns / 4, begin = blockIdx.x * num_words;
  const float4* row = reinterpret_cast<const float4*>(params.input) + begin;
  float4* const output = reinterpret_cast<float4*>(params.output) + begin;
  if constexpr (kPasses == SoftmaxPasses::kOne) {
    // A thread reads again only what it wrote itself.
    ForWords(row, num_words, [&](std::int64_t i, const float4& word) { held[i] = word; });
    row = held;
  }
  const MaximumAndSum of =
      kPasses == SoftmaxPasses::kTwo ? OnlineMaximumAndSum(row, num_words) : MaximumThenSum(row, num_words);
  WriteSoftmax(row, num_words, of, output);
}

}  // namespace

CudaStatus LaunchOnCuda(const SoftmaxPassesParams& params, const CudaSite& site) {
  const std::int64_t threads = std::clamp<std::int64_t>(RoundUp(params.columns / (4 * kUnroll), 32), 32, kMostThreads);
  LaunchShape shape = {.grid = dim3(static_cast<unsigned>(params.rows)), .block = dim3(static_cast<unsigned>(threads))};
  switch (params.passes) {
    case SoftmaxPasses::kThree:
      return Launch(SoftmaxKernel<SoftmaxPasses::kThree>, shape, site.stream, params);
    case SoftmaxPasses::kTwo:
      return Launch(SoftmaxKernel<SoftmaxPasses::kTwo>, shape, site.stream, params);
    case SoftmaxPasses::kOne:
      shape.shared_memory_bytes = static_cast<int>(params.columns * 4);
      return Launch(SoftmaxKernel<SoftmaxPasses::kOne>, shape, site.stream, params);
  }
  return cudaErrorInvalidValue;
}

}  // namespace ridgeline::kernels::microbench
