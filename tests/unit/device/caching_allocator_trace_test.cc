// Traces of varying lengths: with growing segments what is reserved stays within a tenth of the most that was allocated.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/device/caching_allocator.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/fake_memory.h"

namespace ridgeline::device {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kLimitBytes = std::int64_t{80} << 30;

struct Held {
  std::int64_t peak_allocated_bytes;
  std::int64_t peak_reserved_bytes;

  double ratio() const { return static_cast<double>(peak_reserved_bytes) / static_cast<double>(peak_allocated_bytes); }
};

Held HeldAfter(bool grows, const std::function<void(CachingAllocator&, std::vector<LaneProgress>&)>& trace) {
  std::vector<LaneProgress> lanes(5);
  FakeMemory memory(grows);
  CachingAllocator allocator(memory, kLimitBytes, lanes);
  trace(allocator, lanes);
  const MemoryStats stats = allocator.stats();
  return {stats.peak_allocated_bytes, stats.peak_reserved_bytes};
}

// Requests of attention whose lengths vary around a drifting mean, as a server sees them over a day: query, key, value, output
// and the scores of standard attention, several at a time.
void ServeAttention(CachingAllocator& allocator, std::vector<LaneProgress>& lanes) {
  std::mt19937_64 random(7);
  std::vector<std::vector<Buffer>> running(4);
  for (int request = 0; request < 600; ++request) {
    const int lane = request % 4;
    lanes[lane].completed = lanes[lane].queued.load();
    running[lane].clear();
    const double drift = 1 + request / 200.0;
    const auto tokens = static_cast<std::int64_t>(512 * drift * std::exp2(static_cast<double>(random() % 2000) / 1000));
    const std::int64_t row_bytes = tokens * 32 * 128 * 2;
    const std::int64_t score_bytes = tokens * tokens * 32 * 4;
    for (const std::int64_t bytes : {row_bytes, row_bytes / 4, row_bytes / 4, row_bytes, tokens * 32 * 4, score_bytes}) {
      absl::StatusOr<Buffer> buffer = allocator.Allocate(lane, bytes);
      ASSERT_OK(buffer);
      running[lane].push_back(*std::move(buffer));
    }
    ++lanes[lane].queued;
  }
}

// A decode loop that lengthens one tensor step by step while others come and go.
void LengthenTensors(CachingAllocator& allocator, std::vector<LaneProgress>& /*lanes*/) {
  std::vector<Buffer> caches(16);
  std::mt19937_64 random(3);
  for (std::int64_t step = 1; step <= 400; ++step) {
    Buffer& cache = caches[random() % caches.size()];
    absl::StatusOr<Buffer> longer = allocator.Allocate(0, std::max<std::int64_t>(cache.size_bytes(), 16 * kMiB) + 5 * kMiB / 2);
    ASSERT_OK(longer);
    cache = *std::move(longer);
  }
}

// Blocks of all magnitudes, as the benchmark of allocators replaces them.
void ReplaceAtRandom(CachingAllocator& allocator, std::vector<LaneProgress>& /*lanes*/) {
  std::mt19937_64 random(11);
  std::vector<Buffer> live(64);
  for (int i = 0; i < 3000; ++i) {
    Buffer& slot = live[random() % live.size()];
    slot = Buffer();
    absl::StatusOr<Buffer> buffer =
        allocator.Allocate(0, static_cast<std::int64_t>(64e6 * std::exp2(static_cast<double>(random() % 6001) / 1000 - 3)));
    ASSERT_OK(buffer);
    slot = *std::move(buffer);
  }
}

TEST(AllocatorTraceTest, GrowingSegmentsReserveLittleMoreThanWasEverAllocated) {
  for (const auto& trace : {ServeAttention, LengthenTensors, ReplaceAtRandom}) {
    const Held growing = HeldAfter(true, trace);
    const Held fixed = HeldAfter(false, trace);
    EXPECT_GT(growing.peak_allocated_bytes, 500 * kMiB);
    EXPECT_LE(growing.ratio(), 1.1) << growing.peak_reserved_bytes / kMiB << " MiB reserved";
    EXPECT_LT(growing.ratio(), fixed.ratio());
  }
}

}  // namespace
}  // namespace ridgeline::device
