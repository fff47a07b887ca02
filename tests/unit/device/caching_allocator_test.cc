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

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kKiB = 1 << 10;
constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kGiB = 1 << 30;

// Addresses with nothing behind them: the allocator must never look. Never hands out one twice.
class FakeSource final : public MemorySource {
 public:
  ~FakeSource() override { EXPECT_TRUE(mapped_.empty()); }

  absl::StatusOr<void*> Map(std::int64_t size_bytes) override {
    EXPECT_EQ(size_bytes % kSegmentAlignmentBytes, 0);
    if (size_bytes > capacity_bytes_) return absl::ResourceExhaustedError("source is empty");
    capacity_bytes_ -= size_bytes;
    void* const data = reinterpret_cast<void*>(std::exchange(next_, next_ + size_bytes));
    mapped_[data] = size_bytes;
    return data;
  }

  void Unmap(void* data, std::int64_t size_bytes) override {
    EXPECT_EQ(mapped_[data], size_bytes);
    mapped_.erase(data);
    capacity_bytes_ += size_bytes;
  }

  void set_capacity_bytes(std::int64_t bytes) { capacity_bytes_ = bytes; }

 private:
  std::int64_t next_ = kSegmentAlignmentBytes;
  std::int64_t capacity_bytes_ = std::numeric_limits<std::int64_t>::max();
  std::map<void*, std::int64_t> mapped_;
};

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
  FakeSource source_;
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
  EXPECT_EQ(allocator_.stats().segment_count, 2);
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
    const std::vector<SegmentSnapshot> segments = allocator_.Segments();
    ASSERT_EQ(segments.size(), 1u);
    EXPECT_EQ(segments[0].blocks.size(), 1u);
    EXPECT_EQ(allocator_.stats().largest_free_block_bytes, 2 * kMiB);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(CachingAllocatorTest, StatisticsByHand) {
  Buffer a = Allocate(0, 1000);                // 1 KiB of a small segment
  Buffer b = Allocate(0, 3 * kMiB);            // of a large segment
  Buffer c = Allocate(0, 4 * kMiB);            // of the same
  const Buffer d = Allocate(1, 2 * kMiB + 1);  // of another lane's large segment, and a 512 byte tail
  MemoryStats stats = allocator_.stats();
  EXPECT_EQ(stats.requested_bytes, 1000 + 9 * kMiB + 1);
  EXPECT_EQ(stats.allocated_bytes, kKiB + 9 * kMiB + 512);
  EXPECT_EQ(stats.reserved_bytes, 42 * kMiB);
  EXPECT_EQ(stats.segment_count, 3);
  EXPECT_EQ(stats.allocation_count, 4);
  EXPECT_EQ(stats.inactive_split_bytes, 42 * kMiB - stats.allocated_bytes);
  EXPECT_EQ(stats.largest_free_block_bytes, 18 * kMiB - 512);

  a = Buffer();
  b = Buffer();
  stats = allocator_.stats();
  EXPECT_EQ(stats.requested_bytes, 6 * kMiB + 1);
  EXPECT_EQ(stats.allocated_bytes, 6 * kMiB + 512);
  EXPECT_EQ(stats.active_bytes, stats.allocated_bytes);
  EXPECT_EQ(stats.allocation_count, 2);
  EXPECT_EQ(stats.total_allocation_count, 4);
  EXPECT_EQ(stats.inactive_split_bytes, 40 * kMiB - stats.allocated_bytes);  // the small segment is whole again
  EXPECT_DOUBLE_EQ(stats.fragmentation, 1 - (18.0 * kMiB - 512) / (36.0 * kMiB - 512));
  EXPECT_EQ(stats.peak_allocated_bytes, kKiB + 9 * kMiB + 512);
  EXPECT_EQ(stats.peak_reserved_bytes, 42 * kMiB);

  EXPECT_EQ(allocator_.EmptyCache(), 2 * kMiB);
  allocator_.ResetPeaks();
  stats = allocator_.stats();
  EXPECT_EQ(stats.reserved_bytes, 40 * kMiB);
  EXPECT_EQ(stats.peak_allocated_bytes, 6 * kMiB + 512);
  EXPECT_EQ(stats.peak_reserved_bytes, 40 * kMiB);
}

TEST_F(CachingAllocatorTest, EmptyCacheKeepsWhatIsInUseAndLanesWithQueuedWork) {
  const Buffer used = Allocate(0, 12 * kMiB);
  { const Buffer cached = Allocate(0, 14 * kMiB); }
  { const Buffer cached = Allocate(1, 16 * kMiB); }
  QueueWork(1);
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
  EXPECT_EQ(allocator_.stats().reserved_bytes, (500 + 524) * kMiB);
}

TEST_F(CachingAllocatorTest, MemoryThatQueuedWorkMayUseIsNotGivenBack) {
  { const Buffer idle_since_before = Allocate(0, 300 * kMiB); }
  QueueWork(0);
  { const Buffer perhaps_in_use = Allocate(0, 400 * kMiB); }
  EXPECT_THAT(allocator_.Allocate(1, 800 * kMiB), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(allocator_.stats().reserved_bytes, 400 * kMiB);
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

// What the statistics must be, from the blocks themselves.
MemoryStats StatsOf(const std::vector<SegmentSnapshot>& segments) {
  MemoryStats stats;
  for (const SegmentSnapshot& segment : segments) {
    stats.reserved_bytes += segment.size_bytes;
    ++stats.segment_count;
    for (const SegmentSnapshot::Block& block : segment.blocks) {
      if (block.requested_bytes > 0) {
        stats.allocated_bytes += block.size_bytes;
        stats.requested_bytes += block.requested_bytes;
        ++stats.allocation_count;
      } else {
        stats.largest_free_block_bytes = std::max(stats.largest_free_block_bytes, block.size_bytes);
        if (segment.blocks.size() > 1) stats.inactive_split_bytes += block.size_bytes;
      }
    }
  }
  const std::int64_t free_bytes = stats.reserved_bytes - stats.allocated_bytes;
  if (free_bytes > 0) stats.fragmentation = 1 - static_cast<double>(stats.largest_free_block_bytes) / free_bytes;
  return stats;
}

void ExpectSameStats(const MemoryStats& got, const MemoryStats& want) {
  EXPECT_EQ(got.allocated_bytes, want.allocated_bytes);
  EXPECT_EQ(got.reserved_bytes, want.reserved_bytes);
  EXPECT_EQ(got.active_bytes, want.allocated_bytes);
  EXPECT_EQ(got.requested_bytes, want.requested_bytes);
  EXPECT_EQ(got.allocation_count, want.allocation_count);
  EXPECT_EQ(got.segment_count, want.segment_count);
  EXPECT_EQ(got.inactive_split_bytes, want.inactive_split_bytes);
  EXPECT_EQ(got.largest_free_block_bytes, want.largest_free_block_bytes);
  EXPECT_DOUBLE_EQ(got.fragmentation, want.fragmentation);
}

// The buffers that tests hold, by address; what the allocator must agree with.
using ShadowModel = std::map<const char*, Buffer>;

void ExpectWellFormed(const std::vector<SegmentSnapshot>& segments, const ShadowModel& live) {
  std::size_t num_live = 0;
  const char* previous_end = nullptr;
  for (const SegmentSnapshot& segment : segments) {
    EXPECT_GE(segment.data, previous_end);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment.data) % kSegmentAlignmentBytes, 0u);
    const char* data = segment.data;
    bool previous_is_free = false;
    for (const SegmentSnapshot::Block& block : segment.blocks) {
      EXPECT_GT(block.size_bytes, 0);
      EXPECT_EQ(block.size_bytes % CachingAllocator::kGranularityBytes, 0);
      const bool is_free = block.requested_bytes == 0;
      EXPECT_FALSE(is_free && previous_is_free) << "free neighbours did not coalesce";
      previous_is_free = is_free;
      if (!is_free) {
        ++num_live;
        const auto buffer = live.find(data);
        ASSERT_NE(buffer, live.end());
        EXPECT_EQ(buffer->second.size_bytes(), block.requested_bytes);
        EXPECT_GE(block.size_bytes, block.requested_bytes);
      }
      data += block.size_bytes;
    }
    EXPECT_EQ(data, segment.data + segment.size_bytes);
    previous_end = data;
  }
  EXPECT_EQ(num_live, live.size());
}

class CachingAllocatorPropertyTest : public CachingAllocatorTest, public ::testing::WithParamInterface<std::uint64_t> {};

// Blocks never overlap, tile their segments and agree with the model after every step; nothing is left at the end.
TEST_P(CachingAllocatorPropertyTest, RandomWork) {
  std::mt19937_64 random(GetParam());
  const auto draw = [&random](std::int64_t end) { return static_cast<std::int64_t>(random() % end); };
  ShadowModel live;
  std::int64_t peak_allocated_bytes = 0;
  std::int64_t peak_reserved_bytes = 0;
  for (int step = 0; step < 3000; ++step) {
    SCOPED_TRACE(step);
    const int lane = static_cast<int>(draw(3));
    const std::int64_t choice = draw(100);
    if (choice < 55) {
      const std::int64_t size_bytes = 1 + draw(std::int64_t{1} << draw(29));  // all magnitudes up to 256 MiB alike
      absl::StatusOr<Buffer> buffer = allocator_.Allocate(lane, size_bytes);
      if (buffer.ok()) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % CachingAllocator::kGranularityBytes, 0u);
        const char* const data = static_cast<const char*>(buffer->data());
        EXPECT_TRUE(live.emplace(data, *std::move(buffer)).second);
      }
    } else if (choice < 95) {
      if (!live.empty()) live.erase(std::next(live.begin(), draw(static_cast<std::int64_t>(live.size()))));
    } else if (choice < 97) {
      QueueWork(lane);
    } else if (choice < 99) {
      CompleteWork(lane);
    } else {
      allocator_.EmptyCache();
    }
    const std::vector<SegmentSnapshot> segments = allocator_.Segments();
    ExpectWellFormed(segments, live);
    const MemoryStats stats = allocator_.stats();
    ExpectSameStats(stats, StatsOf(segments));
    EXPECT_LE(stats.reserved_bytes, kLimitBytes);
    peak_allocated_bytes = std::max(peak_allocated_bytes, stats.allocated_bytes);
    peak_reserved_bytes = std::max(peak_reserved_bytes, stats.reserved_bytes);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(allocator_.stats().out_of_memory_count, 0) << "the budget was never reached";
  EXPECT_GT(allocator_.stats().retries, 0) << "the cache was never given back";
  EXPECT_EQ(allocator_.stats().peak_allocated_bytes, peak_allocated_bytes);
  EXPECT_GE(allocator_.stats().peak_reserved_bytes, peak_reserved_bytes);
  live.clear();
  for (int lane = 0; lane < 3; ++lane) CompleteWork(lane);
  allocator_.EmptyCache();
  EXPECT_EQ(allocator_.stats().reserved_bytes, 0);
  EXPECT_EQ(allocator_.stats().segment_count, 0);
  EXPECT_TRUE(allocator_.Segments().empty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, CachingAllocatorPropertyTest, ::testing::Range<std::uint64_t>(1, 9));

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
