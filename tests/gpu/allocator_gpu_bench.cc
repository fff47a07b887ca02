// What a pair of allocate and free costs on a GPU: the caching allocator, growing and fixed, beside cudaMallocAsync and
// cudaMalloc; and what growing costs. Times are of the host.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "server/device/caching_allocator.h"
#include "server/device/cuda_context.h"
#include "server/device/cuda_memory.h"

ABSL_FLAG(int, samples, 9, "Samples, of which the median is shown.");

namespace ridgeline {
namespace {

using device::AllocatorOptions;
using device::Buffer;
using device::CachingAllocator;
using device::CudaContext;
using device::CudaMemory;
using device::LaneProgress;

constexpr std::int64_t kLimitBytes = std::int64_t{64} << 30;

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::abort();
}

// Median nanoseconds of one call.
template <typename Call>
double MedianNanoseconds(int calls, Call&& call) {
  std::vector<double> samples;
  call();
  for (int sample = 0; sample < absl::GetFlag(FLAGS_samples); ++sample) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    samples.push_back(time.count() / calls);
  }
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

double CachingNanoseconds(CudaContext& context, std::int64_t size_bytes, const AllocatorOptions& options) {
  std::array<LaneProgress, 1> lanes;
  CudaMemory memory(context);
  CachingAllocator allocator(memory, kLimitBytes, lanes, options);
  return MedianNanoseconds(100'000, [&] {
    if (!allocator.Allocate(0, size_bytes).ok()) std::abort();
  });
}

// Of memory that is taken from the driver and given back each time.
double GrowNanoseconds(CudaContext& context, std::int64_t size_bytes, bool grows) {
  std::array<LaneProgress, 1> lanes;
  CudaMemory memory(context);
  CachingAllocator allocator(memory, kLimitBytes, lanes, {.growing_segments = grows});
  return MedianNanoseconds(10, [&] {
    if (!allocator.Allocate(0, size_bytes).ok()) std::abort();
    allocator.EmptyCache();
  });
}

double AsyncNanoseconds(std::int64_t size_bytes, cudaStream_t stream) {
  return MedianNanoseconds(20'000, [&] {
    void* data = nullptr;
    Check(cudaMallocAsync(&data, static_cast<std::size_t>(size_bytes), stream));
    Check(cudaFreeAsync(data, stream));
  });
}

double MallocNanoseconds(std::int64_t size_bytes) {
  return MedianNanoseconds(20, [&] {
    void* data = nullptr;
    Check(cudaMalloc(&data, static_cast<std::size_t>(size_bytes)));
    Check(cudaFree(data));
  });
}

// Bytes per second of copies within memory of either kind: pages that are mapped apart should read and write as fast.
double CopyBytesPerSecond(CudaContext& context, std::int64_t size_bytes, bool grows, cudaStream_t stream) {
  std::array<LaneProgress, 1> lanes;
  CudaMemory memory(context);
  CachingAllocator allocator(memory, kLimitBytes, lanes, {.growing_segments = grows});
  const absl::StatusOr<Buffer> from = allocator.Allocate(0, size_bytes);
  const absl::StatusOr<Buffer> to = allocator.Allocate(0, size_bytes);
  if (!from.ok() || !to.ok()) std::abort();
  Check(cudaMemsetAsync(from->data(), 1, static_cast<std::size_t>(size_bytes), stream));
  const double nanoseconds = MedianNanoseconds(3, [&] {
    Check(cudaMemcpyAsync(to->data(), from->data(), static_cast<std::size_t>(size_bytes), cudaMemcpyDeviceToDevice, stream));
    Check(cudaStreamSynchronize(stream));
  });
  return 2 * static_cast<double>(size_bytes) / (nanoseconds / 1e9);
}

// cudaMallocAsync keeps what it has between synchronisations, as its documentation recommends for reuse.
void KeepPool() {
  cudaMemPool_t pool = nullptr;
  std::uint64_t threshold_bytes = UINT64_MAX;
  Check(cudaDeviceGetDefaultMemPool(&pool, 0));
  Check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold_bytes));
}

void Run() {
  Check(cudaSetDevice(0));
  KeepPool();
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CudaContext context(0, nullptr);
  std::printf("a pair, ns   %12s %12s %12s %14s %12s\n", "growing", "no history", "fixed", "cudaMallocAsync", "cudaMalloc");
  for (const std::int64_t size_bytes :
       {std::int64_t{512}, std::int64_t{65536}, std::int64_t{1} << 20, std::int64_t{64} << 20, std::int64_t{1} << 30}) {
    std::printf("%11lld  %12.0f %12.0f %12.0f %14.0f %12.0f\n", static_cast<long long>(size_bytes),
                CachingNanoseconds(context, size_bytes, {}), CachingNanoseconds(context, size_bytes, {.history_events = 0}),
                CachingNanoseconds(context, size_bytes, {.growing_segments = false}), AsyncNanoseconds(size_bytes, stream),
                MallocNanoseconds(size_bytes));
    std::fflush(stdout);
  }
  std::printf("taken from the driver and given back, us   %12s %12s\n", "growing", "fixed");
  for (const std::int64_t size_bytes :
       {std::int64_t{2} << 20, std::int64_t{64} << 20, std::int64_t{1} << 30, std::int64_t{16} << 30}) {
    std::printf("%41lld  %12.1f %12.1f\n", static_cast<long long>(size_bytes), GrowNanoseconds(context, size_bytes, true) / 1e3,
                GrowNanoseconds(context, size_bytes, false) / 1e3);
    std::fflush(stdout);
  }
  std::printf("copies within, TB/s                        %12s %12s\n", "growing", "fixed");
  for (const std::int64_t size_bytes : {std::int64_t{1} << 30, std::int64_t{16} << 30}) {
    std::printf("%41lld  %12.2f %12.2f\n", static_cast<long long>(size_bytes),
                CopyBytesPerSecond(context, size_bytes, true, stream) / 1e12,
                CopyBytesPerSecond(context, size_bytes, false, stream) / 1e12);
    std::fflush(stdout);
  }
  Check(cudaStreamDestroy(stream));
}

}  // namespace
}  // namespace ridgeline

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  ridgeline::Run();
}
