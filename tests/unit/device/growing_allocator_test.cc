// Segments that grow in place, and promises.
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "server/device/caching_allocator.h"
#include "server/device/host_memory.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/fake_memory.h"

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kLimitBytes = 1024 * kMiB;

class GrowingAllocatorTest : public ::testing::Test {
 protected:
  Buffer Allocate(int lane, std::int64_t size_bytes) {
    absl::StatusOr<Buffer> buffer = allocator_.Allocate(lane, size_bytes);
    EXPECT_OK(buffer);
    return buffer.ok() ? *std::move(buffer) : Buffer();
  }
  void QueueWork(int lane) { ++lanes_[lane].queued; }
  void CompleteWork(int lane) { lanes_[lane].completed = lanes_[lane].queued.load(); }
  std::int64_t reserved_bytes() const { return allocator_.stats().reserved_bytes; }

  std::array<LaneProgress, 3> lanes_;
  FakeMemory source_{/*can_grow=*/true};
  CachingAllocator allocator_{source_, kLimitBytes, lanes_};
};

TEST_F(GrowingAllocatorTest, ALongerTensorGrowsInPlace) {
  const void* const first = Allocate(0, 100 * kMiB).data();
  for (std::int64_t mib = 101; mib < 160; ++mib) {
    EXPECT_EQ(Allocate(0, mib * kMiB).data(), first);
    EXPECT_LE(reserved_bytes(), (mib + 1) * kMiB) << "only what was missing is mapped";
  }
  EXPECT_EQ(allocator_.stats().segment_count, 1);
}

TEST_F(GrowingAllocatorTest, HolesMoveToWhereMemoryIsNeeded) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < 10; ++i) buffers.push_back(Allocate(0, 40 * kMiB));
  for (int i = 0; i < 10; i += 2) buffers[i] = Buffer();
  EXPECT_EQ(reserved_bytes(), 400 * kMiB);
  const Buffer large = Allocate(0, 200 * kMiB);  // no hole holds it
  EXPECT_LE(reserved_bytes(), 430 * kMiB);
  EXPECT_EQ(allocator_.stats().retries, 0) << "memory was not short";
}

TEST_F(GrowingAllocatorTest, WhatABlockLeavesOfItsNeighboursMakesRoomForIt) {
  Buffer low = Allocate(0, 320 * kMiB);
  Buffer hole = Allocate(0, 80 * kMiB);
  Buffer high = Allocate(0, 320 * kMiB);
  hole = Buffer();
  allocator_.EmptyCache();
  low = Buffer();
  high = Buffer();
  EXPECT_EQ(reserved_bytes(), 640 * kMiB);
  const Buffer across = Allocate(0, 480 * kMiB);  // all of `low`, the hole, a quarter of `high`
  EXPECT_LE(reserved_bytes(), 640 * kMiB) << "the hole is made of what the rest of `high` gave back";
}

TEST_F(GrowingAllocatorTest, TheWholeLimitIsForOneAfterMany) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < 100; ++i) buffers.push_back(Allocate(i % 3, 10 * kMiB));
  buffers.clear();
  const Buffer all = Allocate(1, kLimitBytes);
  EXPECT_EQ(reserved_bytes(), kLimitBytes);
}

TEST_F(GrowingAllocatorTest, MemoryPassesToOtherLanesWhenItsWorkHasCompleted) {
  const void* first = nullptr;
  QueueWork(0);
  {
    const Buffer buffer = Allocate(0, 64 * kMiB);
    first = buffer.data();
  }
  EXPECT_EQ(allocator_.stats().active_bytes, 64 * kMiB) << "its work may still use it";
  { const Buffer same_lane = Allocate(0, 64 * kMiB); }
  EXPECT_NE(Allocate(1, 64 * kMiB).data(), first);
  CompleteWork(0);
  const Buffer blocker = Allocate(1, 64 * kMiB);
  EXPECT_EQ(Allocate(2, 64 * kMiB).data(), first);
  EXPECT_EQ(reserved_bytes(), 128 * kMiB);
}

TEST_F(GrowingAllocatorTest, QueuedWorkKeepsItsMemoryMapped) {
  QueueWork(0);
  { const Buffer in_use = Allocate(0, 600 * kMiB); }
  EXPECT_THAT(allocator_.Allocate(1, 600 * kMiB), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(allocator_.EmptyCache(), 0);
  CompleteWork(0);
  EXPECT_OK(allocator_.Allocate(1, 600 * kMiB));
}

TEST_F(GrowingAllocatorTest, TrimGivesHolesBack) {
  const Buffer low = Allocate(0, 2 * kMiB);
  Buffer hole = Allocate(0, 320 * kMiB);
  const Buffer high = Allocate(0, 2 * kMiB);
  hole = Buffer();
  EXPECT_GE(allocator_.EmptyCache(), 300 * kMiB);
  EXPECT_EQ(allocator_.stats().segment_count, 2) << "what is left lies apart";
  EXPECT_LE(reserved_bytes(), 24 * kMiB);
}

TEST_F(GrowingAllocatorTest, NoAddressesMeansFixedSegments) {
  source_.FailCalls(0, 1);
  const Buffer buffer = Allocate(0, 3 * kMiB);
  EXPECT_EQ(reserved_bytes(), 20 * kMiB);
  EXPECT_FALSE(allocator_.snapshot().segments.at(0).grows);
}

TEST_F(GrowingAllocatorTest, RefusedMemoryIsAskedForAgainAfterTrim) {
  source_.set_capacity_bytes(200 * kMiB);
  { const Buffer other_pool = Allocate(0, kMiB); }
  { const Buffer cached = Allocate(0, 100 * kMiB); }
  const Buffer most = Allocate(1, 200 * kMiB);
  EXPECT_EQ(allocator_.stats().retries, 1);
}

// ---- Promises.

TEST_F(GrowingAllocatorTest, PromisedMemoryIsNotGivenToOthers) {
  EXPECT_OK(allocator_.Reserve(0, 800 * kMiB, nullptr));
  EXPECT_THAT(allocator_.Reserve(1, 300 * kMiB, nullptr), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(allocator_.Allocate(1, 300 * kMiB), StatusIs(absl::StatusCode::kResourceExhausted));
  const Buffer within_rest = Allocate(1, 200 * kMiB);
  Buffer first = Allocate(0, 500 * kMiB);
  const Buffer second = Allocate(0, 300 * kMiB);
  first = Buffer();  // and once more, as work does with its workspace
  EXPECT_EQ(allocator_.stats().promised_bytes, 500 * kMiB);
  EXPECT_THAT(allocator_.Allocate(1, 100 * kMiB), StatusIs(absl::StatusCode::kResourceExhausted));
  first = Allocate(0, 500 * kMiB);
  EXPECT_EQ(allocator_.stats().promised_bytes, 0);
}

TEST_F(GrowingAllocatorTest, WhatAPromiseWasNotUsedForComesFreeAtItsEnd) {
  EXPECT_OK(allocator_.Reserve(0, 800 * kMiB, nullptr));
  Buffer kept = Allocate(0, 100 * kMiB);
  allocator_.EndReservation(0);
  EXPECT_EQ(allocator_.stats().promised_bytes, 0);
  const Buffer other = Allocate(1, 900 * kMiB);
  EXPECT_OK(allocator_.Reserve(0, 10 * kMiB, nullptr));
  kept = Buffer();
  EXPECT_EQ(allocator_.stats().promised_bytes, 10 * kMiB) << "of an earlier promise";
}

TEST_F(GrowingAllocatorTest, APromiseReplacesTheOneBefore) {
  EXPECT_OK(allocator_.Reserve(0, 800 * kMiB, nullptr));
  EXPECT_OK(allocator_.Reserve(0, 900 * kMiB, nullptr));
  EXPECT_EQ(allocator_.stats().promised_bytes, 900 * kMiB);
  EXPECT_FALSE(allocator_.Reserve(0, kLimitBytes + 1, nullptr).ok());
  EXPECT_EQ(allocator_.stats().promised_bytes, 0);
}

TEST_F(GrowingAllocatorTest, ErrorsCarryTheNumbers) {
  const Buffer used = Allocate(0, 600 * kMiB);
  const absl::Status status = allocator_.Allocate(0, 500 * kMiB).status();
  const auto details = base::ErrorDetails(status);
  EXPECT_EQ(details.at("requested_bytes"), std::to_string(500 * kMiB));
  EXPECT_EQ(details.at("allocated_bytes"), std::to_string(600 * kMiB));
  EXPECT_EQ(details.at("reserved_bytes"), std::to_string(600 * kMiB));
  EXPECT_EQ(details.at("limit_bytes"), std::to_string(kLimitBytes));
  EXPECT_EQ(details.at("largest_free_block_bytes"), "0");
}

// ---- History.

TEST_F(GrowingAllocatorTest, HistoryTellsWhoseMemoryItWas) {
  const auto owner = std::make_shared<const MemoryOwner>(MemoryOwner{.operation = "Attend", .request_id = "r-1"});
  EXPECT_OK(allocator_.Reserve(0, 4 * kMiB, owner));
  { const Buffer buffer = Allocate(0, 3 * kMiB); }
  const std::vector<MemoryEvent> events = allocator_.snapshot().history;
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].action, MemoryAction::kSegmentMapped);
  EXPECT_EQ(events[0].size_bytes, 4 * kMiB);
  EXPECT_EQ(events[1].action, MemoryAction::kAllocate);
  EXPECT_EQ(events[2].action, MemoryAction::kFree);
  for (int i = 1; i < 3; ++i) {
    EXPECT_EQ(events[i].owner, owner);
    EXPECT_EQ(events[i].data, events[0].data);
    EXPECT_EQ(events[i].size_bytes, 3 * kMiB);
    EXPECT_GE(events[i].unix_nanoseconds, events[i - 1].unix_nanoseconds);
  }
}

TEST_F(GrowingAllocatorTest, FreedMemoryIsSaidToBeFreeOnce) {
  QueueWork(0);
  { const Buffer buffer = Allocate(0, 8 * kMiB); }
  { const Buffer part = Allocate(0, 3 * kMiB); }
  CompleteWork(0);
  allocator_.EndReservation(0);
  int num_allocated = 0;
  int num_free = 0;
  for (const MemoryEvent& event : allocator_.snapshot().history) {
    num_allocated += event.action == MemoryAction::kAllocate ? 1 : 0;
    num_free += event.action == MemoryAction::kFreeCompleted ? 1 : 0;
  }
  EXPECT_EQ(num_allocated, 2);
  EXPECT_EQ(num_free, 2);
}

TEST(AllocatorHistoryTest, OldEventsMakeRoomForNewOnes) {
  std::array<LaneProgress, 1> lanes;
  HostMemory memory;
  CachingAllocator allocator(memory, kLimitBytes, lanes, {.history_events = 5});
  for (std::int64_t i = 1; i <= 10; ++i) EXPECT_OK(allocator.Allocate(0, i * 512));
  const std::vector<MemoryEvent> events = allocator.snapshot().history;
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[4].size_bytes, 10 * 512);
  EXPECT_EQ(events[4].action, MemoryAction::kFree);
  EXPECT_EQ(events[0].size_bytes, 8 * 512);
  CachingAllocator silent(memory, kLimitBytes, lanes, {.history_events = 0});
  EXPECT_OK(silent.Allocate(0, 1));
  EXPECT_TRUE(silent.snapshot().history.empty());
}

// ---- The host's memory.

TEST(GrowingHostMemoryTest, WhatIsMappedKeepsItsBytesWhileTheSegmentGrows) {
  std::array<LaneProgress, 2> lanes;
  HostMemory memory;
  CachingAllocator allocator(memory, kLimitBytes, lanes);
  std::vector<Buffer> buffers;
  for (int i = 0; i < 20; ++i) {
    absl::StatusOr<Buffer> buffer = allocator.Allocate(i % 2, (i + 1) * kMiB);
    ASSERT_OK(buffer);
    std::memset(buffer->data(), i, static_cast<std::size_t>(buffer->size_bytes()));
    buffers.push_back(*std::move(buffer));
    if (i % 3 == 2) buffers[i / 2] = Buffer();
    allocator.EmptyCache();
  }
  for (int i = 0; i < 20; ++i) {
    const char* const bytes = static_cast<const char*>(buffers[i].data());
    if (bytes == nullptr) continue;
    EXPECT_EQ(bytes[0], i);
    EXPECT_EQ(bytes[buffers[i].size_bytes() - 1], i);
  }
}

}  // namespace
}  // namespace ridgeline::device
