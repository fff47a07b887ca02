#include "server/device/caching_allocator.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "server/device/host_memory.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/fake_memory.h"

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kKiB = 1 << 10;
constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kGiB = 1 << 30;

constexpr std::int64_t kLimitBytes = kGiB;

class CachingAllocatorTest : public ::testing::Test {
 protected:
  Buffer Allocate(int lane, std::int64_t size_bytes) {
    absl::StatusOr<Buffer> buffer = allocator_.Allocate(lane, size_bytes);
    EXPECT_OK(buffer);
    return buffer.ok() ? *std::move(buffer) : Buffer();
  }

  // Work that hasn't completed: memory of that lane that is freed from now on may still be in use.
  void QueueWork(int lane) { ++lanes_[lane].queued; }
  void CompleteWork(int lane) { lanes_[lane].completed = lanes_[lane].queued.load(); }

  std::array<LaneProgress, 3> lanes_;
  FakeMemory source_{/*can_grow=*/false};
  CachingAllocator allocator_{source_, kLimitBytes, lanes_};
};

TEST_F(CachingAllocatorTest, NothingWasEverAllocated) {
  const MemoryStats stats = allocator_.stats();
  EXPECT_EQ(stats.allocated_bytes, 0);
  EXPECT_EQ(stats.reserved_bytes, 0);
  EXPECT_EQ(stats.total_allocation_count, 0);
  EXPECT_EQ(stats.largest_free_block_bytes, 0);
  EXPECT_EQ(stats.fragmentation, 0);
  EXPECT_EQ(stats.limit_bytes, kLimitBytes);
}

TEST_F(CachingAllocatorTest, ZeroBytesAreAnEmptyBuffer) {
  const Buffer buffer = Allocate(0, 0);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size_bytes(), 0);
  EXPECT_EQ(allocator_.stats().reserved_bytes, 0);
  EXPECT_EQ(allocator_.stats().total_allocation_count, 0);
}

TEST_F(CachingAllocatorTest, HostileSizesAreRefused) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(allocator_.Allocate(0, -1), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(allocator_.Allocate(0, std::numeric_limits<std::int64_t>::min()), StatusIs(absl::StatusCode::kInvalidArgument));
  CachingAllocator unlimited(source_, kMax, lanes_);
  for (const std::int64_t size_bytes : {kMax, kMax - 1, kMax - 511, kMax - 512, kMax - kSegmentAlignmentBytes + 1}) {
    EXPECT_THAT(allocator_.Allocate(0, size_bytes), StatusIs(absl::StatusCode::kResourceExhausted)) << size_bytes;
    EXPECT_THAT(unlimited.Allocate(0, size_bytes), StatusIs(absl::StatusCode::kResourceExhausted)) << size_bytes;
  }
  EXPECT_EQ(allocator_.stats().reserved_bytes, 0);
}

struct SizeCase {
  std::int64_t requested_bytes;
  std::int64_t allocated_bytes;
  std::int64_t reserved_bytes;
};

TEST_F(CachingAllocatorTest, SizesOfBlocksAndSegments) {
  const SizeCase cases[] = {
      {1, 512, 2 * kMiB},
      {512, 512, 2 * kMiB},
      {513, 1024, 2 * kMiB},
      {kMiB, kMiB, 2 * kMiB},
      {kMiB + 1, kMiB + 512, 20 * kMiB},
      {10 * kMiB - 512, 10 * kMiB - 512, 20 * kMiB},
      {10 * kMiB, 10 * kMiB, 10 * kMiB},
      {10 * kMiB + 1, 10 * kMiB + 512, 12 * kMiB},  // a rest of almost 2 MiB serves others
      {11 * kMiB + 1, 12 * kMiB, 12 * kMiB},        // a rest below 1 MiB would serve none
      {19 * kMiB, 20 * kMiB, 20 * kMiB},
      {20 * kMiB, 20 * kMiB, 20 * kMiB},
      {500 * kMiB, 500 * kMiB, 500 * kMiB},
  };
  for (const SizeCase& c : cases) {
    Buffer buffer = Allocate(0, c.requested_bytes);
    EXPECT_EQ(buffer.size_bytes(), c.requested_bytes);
    const MemoryStats stats = allocator_.stats();
    EXPECT_EQ(stats.requested_bytes, c.requested_bytes);
    EXPECT_EQ(stats.allocated_bytes, c.allocated_bytes) << c.requested_bytes;
    EXPECT_EQ(stats.active_bytes, c.allocated_bytes) << c.requested_bytes;
    EXPECT_EQ(stats.reserved_bytes, c.reserved_bytes) << c.requested_bytes;
    buffer = Buffer();
    EXPECT_EQ(allocator_.EmptyCache(), c.reserved_bytes);
  }
}

TEST_F(CachingAllocatorTest, FreedMemoryIsReusedOnItsLaneAtOnce) {
  QueueWork(0);
  const void* const first = Allocate(0, 4 * kKiB).data();
  EXPECT_EQ(Allocate(0, 4 * kKiB).data(), first);
  EXPECT_NE(Allocate(1, 4 * kKiB).data(), first);
  CompleteWork(0);
  const Buffer blocker = Allocate(1, kMiB);
  const Buffer rest = Allocate(1, kMiB - 4 * kKiB);
  EXPECT_EQ(Allocate(1, 4 * kKiB).data(), first) << "its work has completed";
  EXPECT_EQ(allocator_.stats().segment_count, 1);
}

TEST_F(CachingAllocatorTest, SmallestFittingBlockIsTaken) {
  Buffer wide = Allocate(0, 64 * kKiB);
  const Buffer wall = Allocate(0, 512);
  Buffer tight = Allocate(0, 16 * kKiB);
  const Buffer other_wall = Allocate(0, 512);
  const void* const wide_data = wide.data();
  const void* const tight_data = tight.data();
  wide = Buffer();
  tight = Buffer();
  const Buffer fits_tight = Allocate(0, 15 * kKiB);
  const Buffer fits_wide = Allocate(0, 17 * kKiB);
  EXPECT_EQ(fits_tight.data(), tight_data);
  EXPECT_EQ(fits_wide.data(), wide_data);
}

TEST_F(CachingAllocatorTest, NeighboursCoalesceInEveryOrderOfFreeing) {
  std::array<int, 3> order = {0, 1, 2};
  do {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 3; ++i) buffers.push_back(Allocate(0, 100 * kKiB));
    for (const int i : order) buffers[i] = Buffer();
    const std::vector<SegmentSnapshot> segments = allocator_.snapshot().segments;
    ASSERT_EQ(segments.size(), 1u);
    EXPECT_EQ(segments[0].blocks.size(), 1u);
    EXPECT_EQ(allocator_.stats().largest_free_block_bytes, 2 * kMiB);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(CachingAllocatorTest, StatisticsByHand) {
  Buffer a = Allocate(0, 1000);                // 1 KiB of a small segment
  Buffer b = Allocate(0, 3 * kMiB);            // of a large segment
  Buffer c = Allocate(0, 4 * kMiB);            // of the same
  const Buffer d = Allocate(1, 2 * kMiB + 1);  // likewise, and a 512 byte tail
  MemoryStats stats = allocator_.stats();
  EXPECT_EQ(stats.requested_bytes, 1000 + 9 * kMiB + 1);
  EXPECT_EQ(stats.allocated_bytes, kKiB + 9 * kMiB + 512);
  EXPECT_EQ(stats.reserved_bytes, 22 * kMiB);
  EXPECT_EQ(stats.segment_count, 2);
  EXPECT_EQ(stats.allocation_count, 4);
  EXPECT_EQ(stats.inactive_split_bytes, 22 * kMiB - stats.allocated_bytes);
  EXPECT_EQ(stats.largest_free_block_bytes, 11 * kMiB - 512);
  EXPECT_EQ(stats.small_pool.allocated_bytes.current, kKiB);
  EXPECT_EQ(stats.small_pool.reserved_bytes.current, 2 * kMiB);
  EXPECT_EQ(stats.large_pool.allocations.current, 3);

  a = Buffer();
  b = Buffer();
  stats = allocator_.stats();
  EXPECT_EQ(stats.requested_bytes, 6 * kMiB + 1);
  EXPECT_EQ(stats.allocated_bytes, 6 * kMiB + 512);
  EXPECT_EQ(stats.active_bytes, stats.allocated_bytes);
  EXPECT_EQ(stats.allocation_count, 2);
  EXPECT_EQ(stats.total_allocation_count, 4);
  EXPECT_EQ(stats.inactive_split_bytes, 20 * kMiB - stats.allocated_bytes);  // the small segment is whole again
  EXPECT_DOUBLE_EQ(stats.fragmentation, 1 - (11.0 * kMiB - 512) / (16.0 * kMiB - 512));
  EXPECT_EQ(stats.peak_allocated_bytes, kKiB + 9 * kMiB + 512);
  EXPECT_EQ(stats.peak_reserved_bytes, 22 * kMiB);
  EXPECT_EQ(stats.all.allocated_bytes.allocated, kKiB + 9 * kMiB + 512);
  EXPECT_EQ(stats.all.allocated_bytes.freed, kKiB + 3 * kMiB);

  EXPECT_EQ(allocator_.EmptyCache(), 2 * kMiB);
  allocator_.ResetPeaks();
  stats = allocator_.stats();
  EXPECT_EQ(stats.reserved_bytes, 20 * kMiB);
  EXPECT_EQ(stats.peak_allocated_bytes, 6 * kMiB + 512);
  EXPECT_EQ(stats.peak_reserved_bytes, 20 * kMiB);
}

TEST_F(CachingAllocatorTest, EmptyCacheKeepsWhatIsInUseAndWhatQueuedWorkMayUse) {
  const Buffer used = Allocate(0, 12 * kMiB);
  QueueWork(1);
  {
    const Buffer cached = Allocate(0, 14 * kMiB);
    const Buffer perhaps_in_use = Allocate(1, 16 * kMiB);
  }
  EXPECT_EQ(allocator_.EmptyCache(), 14 * kMiB);
  CompleteWork(1);
  EXPECT_EQ(allocator_.EmptyCache(), 16 * kMiB);
  EXPECT_EQ(allocator_.EmptyCache(), 0);
  EXPECT_EQ(allocator_.stats().reserved_bytes, 12 * kMiB);
}

TEST_F(CachingAllocatorTest, CachedSegmentsMakeRoomWithinTheBudget) {
  { const Buffer cached = Allocate(0, 600 * kMiB); }
  const Buffer other_lane = Allocate(1, 700 * kMiB);
  MemoryStats stats = allocator_.stats();
  EXPECT_EQ(stats.retries, 1);
  EXPECT_EQ(stats.reserved_bytes, 700 * kMiB);
  EXPECT_EQ(stats.out_of_memory_count, 0);

  { const Buffer cached = Allocate(0, 300 * kMiB); }
  const Buffer same_lane = Allocate(0, 310 * kMiB);  // its own cache is too small to serve and too large to keep
  stats = allocator_.stats();
  EXPECT_EQ(stats.retries, 2);
  EXPECT_EQ(stats.reserved_bytes, 1010 * kMiB);
}

TEST_F(CachingAllocatorTest, OnlyAsMuchIsGivenBackAsIsNeeded) {
  {
    const Buffer small = Allocate(0, 100 * kMiB);
    const Buffer middle = Allocate(1, 300 * kMiB);
    const Buffer large = Allocate(2, 500 * kMiB);
  }
  const Buffer buffer = Allocate(0, 524 * kMiB);
  EXPECT_EQ(allocator_.stats().reserved_bytes, (100 + 300 + 524) * kMiB) << "the largest goes first";
}

TEST_F(CachingAllocatorTest, MemoryThatQueuedWorkMayUseIsNotGivenBack) {
  { const Buffer idle_since_before = Allocate(0, 300 * kMiB); }
  QueueWork(0);
  { const Buffer perhaps_in_use = Allocate(0, 400 * kMiB); }
  EXPECT_THAT(allocator_.Allocate(1, 800 * kMiB), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(allocator_.stats().reserved_bytes, 700 * kMiB) << "nothing was given back in vain";
  EXPECT_EQ(allocator_.stats().retries, 0) << "it did not succeed";
  CompleteWork(0);
  EXPECT_OK(allocator_.Allocate(1, 800 * kMiB));
  EXPECT_EQ(allocator_.stats().retries, 1);
}

TEST_F(CachingAllocatorTest, JoinedBlocksRememberTheLatestUse) {
  for (const bool back_first : {false, true}) {
    { const Buffer segment = Allocate(0, 300 * kMiB); }  // of which these are the parts:
    Buffer front = Allocate(0, 100 * kMiB);
    Buffer back = Allocate(0, 200 * kMiB);
    if (back_first) std::swap(front, back);
    front = Buffer();  // nothing queued uses it
    QueueWork(0);
    back = Buffer();
    EXPECT_THAT(allocator_.Allocate(1, 800 * kMiB), StatusIs(absl::StatusCode::kResourceExhausted));
    CompleteWork(0);
    EXPECT_OK(allocator_.Allocate(1, 800 * kMiB));
    EXPECT_EQ(allocator_.EmptyCache(), 800 * kMiB);
  }
}

TEST_F(CachingAllocatorTest, TightSegmentWhereTheUsualOneDoesNotFit) {
  const Buffer most = Allocate(0, kLimitBytes - 4 * kMiB);
  const Buffer buffer = Allocate(0, 3 * kMiB);  // usually from a segment of 20 MiB
  EXPECT_EQ(allocator_.stats().reserved_bytes, kLimitBytes);
  EXPECT_EQ(allocator_.stats().retries, 0);
}

TEST_F(CachingAllocatorTest, ExhaustedSourceGetsAllCachedSegmentsBack) {
  source_.set_capacity_bytes(100 * kMiB);
  {
    const Buffer cached = Allocate(0, 40 * kMiB);
    const Buffer also_cached = Allocate(1, 50 * kMiB);
  }
  const Buffer buffer = Allocate(2, 100 * kMiB);
  EXPECT_EQ(buffer.size_bytes(), 100 * kMiB);
  EXPECT_EQ(allocator_.stats().retries, 1);
  EXPECT_THAT(allocator_.Allocate(2, 1), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(CachingAllocatorTest, OutOfMemorySaysWhatThereIs) {
  const Buffer used = Allocate(0, 600 * kMiB);
  Buffer front = Allocate(0, 5 * kMiB);
  const Buffer back = Allocate(0, 3 * kMiB);
  front = Buffer();
  const absl::Status status = allocator_.Allocate(0, 512 * kMiB).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               AllOf(HasSubstr("requested 512.0 MiB (536870912 bytes)"), HasSubstr("allocated 603.0 MiB"),
                                     HasSubstr("reserved 620.0 MiB"), HasSubstr("limit 1.0 GiB"),
                                     HasSubstr("largest free block 12.0 MiB"))));
  EXPECT_EQ(base::ErrorReason(status), base::kReasonOutOfMemory);
  const MemoryStats stats = allocator_.stats();
  EXPECT_EQ(stats.out_of_memory_count, 1);
  EXPECT_EQ(stats.allocation_count, 2);
  EXPECT_EQ(stats.total_allocation_count, 3);
}

TEST_F(CachingAllocatorTest, BufferMovesCarryOwnership) {
  Buffer a = Allocate(0, 100);
  Buffer b = std::move(a);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move): what a move leaves is promised
  EXPECT_EQ(a.size_bytes(), 0);
  EXPECT_EQ(allocator_.stats().allocation_count, 1);
  b = Allocate(0, 200);
  EXPECT_EQ(allocator_.stats().allocation_count, 1);
  EXPECT_EQ(b.size_bytes(), 200);
}

// Every thread writes all over its buffers and finds them as it left them.
TEST(CachingAllocatorThreadsTest, BuffersBelongToOneThreadAtATime) {
  constexpr int kThreads = 8;
  constexpr int kSteps = 2000;
  std::array<LaneProgress, 4> lanes;
  HostMemory memory;
  CachingAllocator allocator(memory, 256 * kMiB, lanes);
  std::vector<std::thread> threads;
  for (int thread_idx = 0; thread_idx < kThreads; ++thread_idx) {
    threads.emplace_back([&allocator, thread_idx] {
      std::mt19937_64 random(thread_idx);
      std::array<Buffer, 16> buffers;
      for (int step = 0; step < kSteps; ++step) {
        Buffer& buffer = buffers[random() % buffers.size()];
        const char* const bytes = static_cast<const char*>(buffer.data());
        if (buffer.size_bytes() > 0) {
          EXPECT_EQ(bytes[0], thread_idx);
          EXPECT_EQ(bytes[buffer.size_bytes() - 1], thread_idx);
        }
        buffer = Buffer();
        absl::StatusOr<Buffer> next = allocator.Allocate(thread_idx % 4, 1 + static_cast<std::int64_t>(random() % (64 * kKiB)));
        if (random() % 64 == 0) allocator.EmptyCache();
        if (random() % 64 == 0) allocator.stats();
        ASSERT_OK(next);
        buffer = *std::move(next);
        std::memset(buffer.data(), thread_idx, static_cast<std::size_t>(buffer.size_bytes()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator.stats().total_allocation_count, kThreads * kSteps);
  EXPECT_EQ(allocator.stats().allocation_count, 0);
  allocator.EmptyCache();
  EXPECT_EQ(allocator.stats().reserved_bytes, 0);
}

}  // namespace
}  // namespace ridgeline::device
