#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/microbench/microbench_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kThreads = 256;
constexpr int kThreadWords = 4;  // loads in flight of one thread: with full SMs far more than hides the memory's latency
constexpr int kBlockWords = kThreads * kThreadWords;

// A copy in words of one size: bytes up to where the destination is aligned, whole words, bytes that are left.
struct CopyParts {
  std::uint8_t* destination;
  const std::uint8_t* source;
  int head_bytes;
  std::int64_t num_words;
  int tail_bytes;
};

// A block moves kBlockWords words; the first one also moves head and tail. Nothing of it is read again soon: the accesses tell
// the caches so.
template <typename Word>
__global__ void __launch_bounds__(kThreads) CopyKernel(const __grid_constant__ CopyParts parts) {
  const Word* const source = reinterpret_cast<const Word*>(parts.source + parts.head_bytes);
  Word* const destination = reinterpret_cast<Word*>(parts.destination + parts.head_bytes);
  const std::int64_t first = std::int64_t{blockIdx.x} * kBlockWords + threadIdx.x;
  Word words[kThreadWords];
#pragma unroll
  for (int i = 0; i < kThreadWords; ++i) {
    if (first + i * kThreads < parts.num_words) words[i] = __ldcs(source + first + i * kThreads);
  }
#pragma unroll
  for (int i = 0; i < kThreadWords; ++i) {
    if (first + i * kThreads < parts.num_words) __stcs(destination + first + i * kThreads, words[i]);
  }
  if (blockIdx.x > 0) return;
  const int idx = static_cast<int>(threadIdx.x);
  if (idx < parts.head_bytes) parts.destination[idx] = parts.source[idx];
  const std::int64_t tail = parts.head_bytes + parts.num_words * std::int64_t{sizeof(Word)} + idx;
  if (idx < parts.tail_bytes) parts.destination[tail] = parts.source[tail];
}

template <typename Word>
cudaError_t CopyInWords(std::uint8_t* destination, const std::uint8_t* source, std::int64_t bytes, cudaStream_t stream) {
  constexpr std::int64_t kWordBytes = sizeof(Word);
  const std::int64_t misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(destination) % kWordBytes);
  const std::int64_t head_bytes = std::min(bytes, (kWordBytes - misaligned) % kWordBytes);
  const std::int64_t num_words = (bytes - head_bytes) / kWordBytes;
  const CopyParts parts = {.destination = destination,
                           .source = source,
                           .head_bytes = static_cast<int>(head_bytes),
                           .num_words = num_words,
                           .tail_bytes = static_cast<int>((bytes - head_bytes) % kWordBytes)};
  const std::int64_t num_blocks = std::max<std::int64_t>(1, (num_words + kBlockWords - 1) / kBlockWords);
  return Launch(CopyKernel<Word>, {dim3(static_cast<unsigned>(num_blocks)), dim3(kThreads)}, stream, parts);
}

}  // namespace

cudaError_t LaunchCopy(void* destination, const void* source, std::int64_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  auto* const to = static_cast<std::uint8_t*>(destination);
  const auto* const from = static_cast<const std::uint8_t*>(source);
  // The largest word that is aligned in both at once.
  const std::uintptr_t distance = reinterpret_cast<std::uintptr_t>(to) ^ reinterpret_cast<std::uintptr_t>(from);
  if (distance % sizeof(uint4) == 0) return CopyInWords<uint4>(to, from, bytes, stream);
  if (distance % sizeof(std::uint32_t) == 0) return CopyInWords<std::uint32_t>(to, from, bytes, stream);
  return CopyInWords<std::uint8_t>(to, from, bytes, stream);
}

}  // namespace ridgeline::kernels::microbench
