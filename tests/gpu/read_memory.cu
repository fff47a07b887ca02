#include "tests/gpu/read_memory.h"

namespace ridgeline::gpu {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocks = 1056;  // of an H200, what read fastest
constexpr int kAtOnce = 8;
constexpr std::uint32_t kUnlikely = 0x12345678;

__global__ void __launch_bounds__(kThreads) Read(const uint4* data, std::int64_t count, std::uint32_t* sink) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  std::int64_t idx = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  std::uint32_t mixed = 0;
  for (; idx + (kAtOnce - 1) * stride < count; idx += kAtOnce * stride) {
    uint4 words[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) words[i] = data[idx + i * stride];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) mixed ^= words[i].x ^ words[i].y ^ words[i].z ^ words[i].w;
  }
  for (; idx < count; idx += stride) mixed ^= data[idx].x ^ data[idx].y ^ data[idx].z ^ data[idx].w;
  if (mixed == kUnlikely) *sink = mixed;
}

}  // namespace

cudaError_t LaunchRead(const void* data, std::int64_t size_bytes, std::uint32_t* sink, cudaStream_t stream) {
  Read<<<kBlocks, kThreads, 0, stream>>>(static_cast<const uint4*>(data), size_bytes / 16, sink);
  return cudaGetLastError();
}

}  // namespace ridgeline::gpu
