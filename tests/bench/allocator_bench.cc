// What a pair of allocate and free costs: the caching allocator over the host's memory, beside malloc and fresh mappings.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "server/device/caching_allocator.h"
#include "server/device/host_memory.h"

ABSL_FLAG(int, pairs, 200'000, "Pairs of a sample.");
ABSL_FLAG(int, samples, 15, "Samples, of which the median is shown.");

namespace ridgeline {
namespace {

using device::AllocatorOptions;
using device::Buffer;
using device::CachingAllocator;
using device::HostMemory;
using device::LaneProgress;

constexpr std::int64_t kLimitBytes = std::int64_t{8} << 30;

// Of this thread's own work: what others do on the machine does not count.
double ThreadNanoseconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

// Median nanoseconds of one call.
template <typename Call>
double MedianNanoseconds(int calls, Call&& call) {
  std::vector<double> samples;
  for (int sample = 0; sample < absl::GetFlag(FLAGS_samples); ++sample) {
    const double begin = ThreadNanoseconds();
    for (int i = 0; i < calls; ++i) call();
    samples.push_back((ThreadNanoseconds() - begin) / calls);
  }
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

// Beside `num_live` other allocations of mixed sizes, with holes between them.
double CachingNanoseconds(std::int64_t size_bytes, const AllocatorOptions& options, int num_live) {
  std::array<LaneProgress, 2> lanes;
  HostMemory memory;
  CachingAllocator allocator(memory, kLimitBytes, lanes, options);
  std::vector<Buffer> live;
  for (int i = 0; i < num_live; ++i) live.push_back(*allocator.Allocate(1, 1000 + 777 * (i % 64)));
  for (int i = 0; i < num_live; i += 2) live[i] = Buffer();
  return MedianNanoseconds(absl::GetFlag(FLAGS_pairs), [&] {
    if (!allocator.Allocate(0, size_bytes).ok()) std::abort();
  });
}

double MallocNanoseconds(std::int64_t size_bytes) {
  return MedianNanoseconds(absl::GetFlag(FLAGS_pairs), [size_bytes] {
    void* volatile data = std::malloc(static_cast<std::size_t>(size_bytes));
    std::free(data);
  });
}

double MappingNanoseconds(std::int64_t size_bytes) {
  HostMemory memory;
  const std::int64_t bytes = std::max(size_bytes, device::kSegmentAlignmentBytes);
  return MedianNanoseconds(absl::GetFlag(FLAGS_pairs) / 100, [&] { memory.Unmap(*memory.Map(bytes), bytes); });
}

void Run() {
  std::printf("%12s %12s %12s %12s %12s %12s\n", "bytes", "caching", "no history", "1000 live", "malloc", "mapping");
  for (const std::int64_t size_bytes : {512, 65536, 1 << 20, 16 << 20, 256 << 20}) {
    std::printf("%12lld %9.0f ns %9.0f ns %9.0f ns %9.0f ns %9.0f ns\n", static_cast<long long>(size_bytes),
                CachingNanoseconds(size_bytes, {}, 0), CachingNanoseconds(size_bytes, {.history_events = 0}, 0),
                CachingNanoseconds(size_bytes, {}, 1000), MallocNanoseconds(size_bytes), MappingNanoseconds(size_bytes));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace ridgeline

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  ridgeline::Run();
}
