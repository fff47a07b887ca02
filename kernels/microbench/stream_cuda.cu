// Streams: a block on each multiprocessor, which keeps to its words for all passes. Those that are read are a slice; those that
// are written lie a grid apart, since memory takes writes faster that are near each other at one time.
//
//   read   slice ──L1, L2, memory or shared memory──► registers ──sum──► slice_sums
//   write, copy, triad   (words ──►) registers ──► words
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/cached_access.cuh"
#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/rounding.h"
#include "kernels/common/shared_memory.cuh"
#include "kernels/microbench/block_sum.cuh"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kMostThreads = 1024, kLeastThreads = 128;
constexpr int kUnroll = 4;            // words in flight of one thread: 64 KiB of a block, which hides memory's latency
constexpr std::int64_t kGranule = 4;  // elements: slices begin at whole words
constexpr int kFullSharedMemory = 100, kNone = 0;  // per cent of what shared memory and the L1 cache have between them

struct Slice {
  std::int64_t begin, end;
};

__device__ __forceinline__ Slice SliceOf(std::int64_t elements) {
  const auto bound = [&](std::int64_t slice) { return elements * slice / gridDim.x / kGranule * kGranule; };
  return {bound(blockIdx.x), blockIdx.x + 1 == gridDim.x ? elements : bound(blockIdx.x + 1)};
}

__device__ __forceinline__ float Sum(float word) { return word; }
__device__ __forceinline__ float Sum(const float4& word) { return word.x + word.y + (word.z + word.w); }

__device__ __forceinline__ float Triad(float a, float b, float scale) { return fmaf(scale, b, a); }
__device__ __forceinline__ float4 Triad(const float4& a, const float4& b, float scale) {
  return {fmaf(scale, b.x, a.x), fmaf(scale, b.y, a.y), fmaf(scale, b.z, a.z), fmaf(scale, b.w, a.w)};
}

__device__ __forceinline__ void Fill(float& word, float value) { word = value; }
__device__ __forceinline__ void Fill(float4& word, float value) { word = {value, value, value, value}; }

// Uses the words first, first + step, ... below `words`: use(i, word, u). kUnroll at a time, u from 0 on, so that their loads
// are in flight together.
template <typename Load, typename Use>
__device__ __forceinline__ void ForWords(std::int64_t first, std::int64_t step, std::int64_t words, const Load& load,
                                         const Use& use) {
  using Word = decltype(load(std::int64_t{0}));
  std::int64_t i = first;
  for (; i + (kUnroll - 1) * step < words; i += kUnroll * step) {
    Word loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) loaded[u] = load(i + u * step);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) use(i + u * step, loaded[u], u);
  }
  for (; i < words; i += step) use(i, load(i), 0);
}

// Word: float4, or float where the arrays are not aligned to it.
template <typename Word, ReadPath kPath>
__global__ void __launch_bounds__(kMostThreads, 1) ReadKernel(const __grid_constant__ StreamParams params) {
  constexpr int kElements = sizeof(Word) / sizeof(float);
  const Slice slice = SliceOf(params.elements);
  const auto* const words = reinterpret_cast<const Word*>(params.a + slice.begin);
  const std::int64_t num_words = (slice.end - slice.begin) / kElements;
  const std::int64_t tail = slice.begin + num_words * kElements + threadIdx.x;
  const auto load = [&](std::int64_t i) {
    return kPath == ReadPath::kPastL1 ? LoadPastL1(words + i) : LoadThroughL1(words + i);
  };
  float sums[kUnroll] = {};
  for (std::int64_t pass = 0; pass < params.passes; ++pass) {
#pragma unroll
    for (float& sum : sums) sum = 0;
    ForWords(threadIdx.x, blockDim.x, num_words, load,
             [&](std::int64_t /*i*/, const Word& word, int u) { sums[u] += Sum(word); });
    if (tail < slice.end) sums[0] += LoadThroughL1(params.a + tail);
  }
  const float sum = SumOfBlock(sums[0] + sums[1] + (sums[2] + sums[3]));
  if (threadIdx.x == 0) params.slice_sums[blockIdx.x] = sum;
}

template <typename Word, StreamOperation kOperation>
__global__ void __launch_bounds__(kMostThreads, 1) WriteKernel(const __grid_constant__ StreamParams params) {
  constexpr int kElements = sizeof(Word) / sizeof(float);
  const std::int64_t num_words = params.elements / kElements;
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x,
                     threads = std::int64_t{gridDim.x} * blockDim.x;
  const auto make = [&](auto a, auto b, std::int64_t i) {
    auto word = std::remove_cvref_t<decltype(*a)>();
    if constexpr (kOperation == StreamOperation::kWrite) Fill(word, params.scale);
    if constexpr (kOperation == StreamOperation::kCopy) word = LoadThroughL1(a + i);
    if constexpr (kOperation == StreamOperation::kTriad) word = Triad(LoadThroughL1(a + i), LoadThroughL1(b + i), params.scale);
    return word;
  };
  const auto* const a = reinterpret_cast<const Word*>(params.a);
  const auto* const b = reinterpret_cast<const Word*>(params.b);
  auto* const destination = reinterpret_cast<Word*>(params.destination);
  const std::int64_t tail = num_words * kElements + thread;
  for (std::int64_t pass = 0; pass < params.passes; ++pass) {
    ForWords(
        thread, threads, num_words, [&](std::int64_t i) { return make(a, b, i); },
        [&](std::int64_t i, const Word& word, int /*u*/) { destination[i] = word; });
    if (tail < params.elements) params.destination[tail] = make(params.a, params.b, tail);
    asm volatile("" ::: "memory");  // a later pass does not make this one's stores superfluous
  }
}

__global__ void __launch_bounds__(kMostThreads, 1) ReadSharedKernel(const __grid_constant__ StreamParams params) {
  extern __shared__ float4 held[];
  const Slice slice = SliceOf(params.elements);
  const std::int64_t elements = slice.end - slice.begin, num_words = CeilDivide(elements, 4);
  auto* const held_elements = reinterpret_cast<float*>(held);
  for (std::int64_t i = threadIdx.x; i < num_words * 4; i += blockDim.x) {
    held_elements[i] = i < elements ? params.a[slice.begin + i] : 0.0f;
  }
  __syncthreads();
  const std::uint32_t base = SharedAddress(held);
  const auto load = [&](std::int64_t i) { return LoadShared16(base + static_cast<std::uint32_t>(i) * sizeof(float4)); };
  float sums[kUnroll] = {};
  for (std::int64_t pass = 0; pass < params.passes; ++pass) {
#pragma unroll
    for (float& sum : sums) sum = 0;
    ForWords(threadIdx.x, blockDim.x, num_words, load, [&](std::int64_t /*i*/, const uint4& word, int u) {
      sums[u] +=
          Sum(float4{__uint_as_float(word.x), __uint_as_float(word.y), __uint_as_float(word.z), __uint_as_float(word.w)});
    });
  }
  const float sum = SumOfBlock(sums[0] + sums[1] + (sums[2] + sums[3]));
  if (threadIdx.x == 0) params.slice_sums[blockIdx.x] = sum;
}

using Kernel = void (*)(StreamParams);

template <typename Word>
Kernel ChooseKernel(const StreamParams& params) {
  switch (params.operation) {
    case StreamOperation::kRead:
      return params.path == ReadPath::kPastL1 ? ReadKernel<Word, ReadPath::kPastL1> : ReadKernel<Word, ReadPath::kCaches>;
    case StreamOperation::kWrite:
      return WriteKernel<Word, StreamOperation::kWrite>;
    case StreamOperation::kCopy:
      return WriteKernel<Word, StreamOperation::kCopy>;
    default:
      return WriteKernel<Word, StreamOperation::kTriad>;
  }
}

// Null pointers are aligned, too.
bool AreWordsAligned(const StreamParams& params) {
  const auto bits = reinterpret_cast<std::uintptr_t>(params.a) | reinterpret_cast<std::uintptr_t>(params.b) |
                    reinterpret_cast<std::uintptr_t>(params.destination);
  return bits % sizeof(float4) == 0;
}

// So many threads that each has kUnroll words of a slice: of a short one, loads under way at once are worth more than threads.
dim3 BlockOf(const StreamParams& params, int num_slices) {
  const std::int64_t wanted = CeilDivide(params.elements, num_slices * kGranule * kUnroll);
  return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(RoundUp(wanted, 32), kLeastThreads, kMostThreads)));
}

cudaError_t LaunchShared(const StreamParams& params, const CudaSite& site) {
  // Of the longest slice, which rounding has made longer by less than a granule.
  const std::int64_t slice_bytes = (RoundUp(CeilDivide(params.elements, site.num_sms), kGranule) + kGranule) * 4;
  const LaunchShape shape = {
      .grid = dim3(site.num_sms), .block = BlockOf(params, site.num_sms), .shared_memory_bytes = static_cast<int>(slice_bytes)};
  const cudaError_t error =
      cudaFuncSetAttribute(ReadSharedKernel, cudaFuncAttributePreferredSharedMemoryCarveout, kFullSharedMemory);
  return error != cudaSuccess ? error : Launch(ReadSharedKernel, shape, site.stream, params);
}

}  // namespace

CudaStatus LaunchOnCuda(const StreamParams& params, const CudaSite& site) {
  if (params.path == ReadPath::kSharedMemory) return LaunchShared(params, site);
  const Kernel kernel = AreWordsAligned(params) ? ChooseKernel<float4>(params) : ChooseKernel<float>(params);
  // All of the L1 cache for loads: the kernels have next to nothing in shared memory.
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, kNone);
  if (error != cudaSuccess) return error;
  // Every slot of the sums is written; small work that has none is not spread thin.
  const std::int64_t most_blocks = std::max<std::int64_t>(1, CeilDivide(params.elements, kGranule * kUnroll * kLeastThreads));
  const bool fills_slots = params.operation == StreamOperation::kRead;
  const auto blocks = static_cast<int>(fills_slots ? site.num_sms : std::min<std::int64_t>(site.num_sms, most_blocks));
  return Launch(kernel, {.grid = dim3(blocks), .block = BlockOf(params, blocks)}, site.stream, params);
}

}  // namespace ridgeline::kernels::microbench
