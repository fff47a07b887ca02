#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/float16.cuh"
#include "kernels/microbench/microbench_cuda.h"
#include "kernels/microbench/philox.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockElements = 4;  // of one Philox counter, which is one thread's work

// (bits + 1/2) / 2^32, rounded once, in (0, 1]: in two halves, as FillNormalOnCpu does it.
__device__ __forceinline__ float UniformFromBits(std::uint32_t bits) {
  const float high = static_cast<float>(bits >> 16);
  const float low = static_cast<float>(bits & 0xffffu);
  return fmaf(high, 0x1p-16f, __fmul_rn(low + 0.5f, 0x1p-32f));
}

// mean + standard_deviation * (two normals), by Box-Muller.
__device__ __forceinline__ float2 NormalPair(std::uint32_t radius_bits, std::uint32_t angle_bits, float mean,
                                             float standard_deviation) {
  const float scaled_radius = sqrtf(-2.0f * logf(UniformFromBits(radius_bits))) * standard_deviation;
  float sine, cosine;
  sincospif(2.0f * UniformFromBits(angle_bits), &sine, &cosine);
  return {fmaf(scaled_radius, cosine, mean), fmaf(scaled_radius, sine, mean)};
}

// 4 elements at once; `to` is aligned to their size.
template <typename T>
__device__ __forceinline__ void StoreBlock(const float (&values)[kBlockElements], T* to) {
  if constexpr (std::is_same_v<T, float>) {
    *reinterpret_cast<float4*>(to) = {values[0], values[1], values[2], values[3]};
  } else {
    *reinterpret_cast<uint2*>(to) = {PackPair<T>(values[0], values[1]), PackPair<T>(values[2], values[3])};
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    FillNormalKernel(std::int64_t elements, PhiloxKey key, float mean, float standard_deviation, T* destination) {
  const std::int64_t counter = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t first = counter * kBlockElements;
  if (first >= elements) return;
  const PhiloxCounter bits =
      Philox4x32({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0}, key);
  const float2 pair0 = NormalPair(bits[0], bits[1], mean, standard_deviation);
  const float2 pair1 = NormalPair(bits[2], bits[3], mean, standard_deviation);
  const float values[kBlockElements] = {pair0.x, pair0.y, pair1.x, pair1.y};
  T* const to = destination + first;
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(to) % (kBlockElements * sizeof(T)) == 0;
  if (is_aligned && elements - first >= kBlockElements) return StoreBlock(values, to);
#pragma unroll
  for (int i = 0; i < kBlockElements; ++i) {
    if (first + i < elements) to[i] = FromFloat<T>(values[i]);
  }
}

template <typename T>
cudaError_t LaunchTyped(std::int64_t elements, std::uint64_t seed, float mean, float standard_deviation, void* destination,
                        cudaStream_t stream) {
  const PhiloxKey key = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  constexpr std::int64_t kElements = std::int64_t{kThreads} * kBlockElements;
  const unsigned num_blocks = static_cast<unsigned>((elements + kElements - 1) / kElements);
  return Launch(FillNormalKernel<T>, {dim3(num_blocks), dim3(kThreads)}, stream, elements, key, mean, standard_deviation,
                static_cast<T*>(destination));
}

}  // namespace

cudaError_t LaunchFillNormal(DataType type, std::int64_t elements, std::uint64_t seed, float mean, float standard_deviation,
                             void* destination, cudaStream_t stream) {
  switch (type) {
    case DataType::kFloat16:
      return LaunchTyped<__half>(elements, seed, mean, standard_deviation, destination, stream);
    case DataType::kBFloat16:
      return LaunchTyped<__nv_bfloat16>(elements, seed, mean, standard_deviation, destination, stream);
    default:
      return LaunchTyped<float>(elements, seed, mean, standard_deviation, destination, stream);
  }
}

}  // namespace ridgeline::kernels::microbench
