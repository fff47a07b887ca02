#include "tests/unit/device/allocator_model.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/common/rounding.h"

namespace ridgeline::device {
namespace {

using kernels::RoundUp;

// What the statistics must be, from the blocks themselves.
PoolMemoryStats StatsOf(const MemorySnapshot& snapshot, const std::function<bool(const SegmentSnapshot&)>& counts) {
  PoolMemoryStats stats;
  for (const SegmentSnapshot& segment : snapshot.segments) {
    if (!counts(segment)) continue;
    stats.reserved_bytes.current += segment.size_bytes;
    ++stats.segments.current;
    for (const SegmentSnapshot::Block& block : segment.blocks) {
      if (block.use == BlockUse::kFree) continue;
      stats.active_bytes.current += block.size_bytes;
      ++stats.active_blocks.current;
      if (block.use == BlockUse::kAwaitingFree) continue;
      stats.allocated_bytes.current += block.size_bytes;
      stats.requested_bytes.current += block.requested_bytes;
      ++stats.allocations.current;
    }
  }
  return stats;
}

void ExpectSameCurrent(const PoolMemoryStats& got, const PoolMemoryStats& want, const char* pool) {
  SCOPED_TRACE(pool);
  EXPECT_EQ(got.allocated_bytes.current, want.allocated_bytes.current);
  EXPECT_EQ(got.reserved_bytes.current, want.reserved_bytes.current);
  EXPECT_EQ(got.active_bytes.current, want.active_bytes.current);
  EXPECT_EQ(got.requested_bytes.current, want.requested_bytes.current);
  EXPECT_EQ(got.allocations.current, want.allocations.current);
  EXPECT_EQ(got.segments.current, want.segments.current);
  EXPECT_EQ(got.active_blocks.current, want.active_blocks.current);
  for (const MemoryStat* stat : {&got.allocated_bytes, &got.reserved_bytes, &got.active_bytes, &got.inactive_split_bytes,
                                 &got.requested_bytes, &got.allocations, &got.segments, &got.active_blocks}) {
    EXPECT_EQ(stat->allocated - stat->freed, stat->current);
    EXPECT_GE(stat->peak, stat->current);
    EXPECT_GE(stat->current, 0);
  }
}

bool IsSmall(const SegmentSnapshot& segment) { return segment.small; }
bool IsLarge(const SegmentSnapshot& segment) { return !segment.small; }
bool IsAny(const SegmentSnapshot& /*segment*/) { return true; }

}  // namespace

bool AllocatorModel::Allocate(int lane, std::int64_t size_bytes) {
  absl::StatusOr<Buffer> buffer = allocator_.Allocate(lane, size_bytes);
  if (!buffer.ok()) {
    ++num_refusals_;
    EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
    return false;
  }
  const char* const data = static_cast<const char*>(buffer->data());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % CachingAllocator::kGranularityBytes, 0u);
  EXPECT_EQ(buffer->size_bytes(), size_bytes);
  const auto next = live_.lower_bound(data);
  EXPECT_TRUE(next == live_.end() || next->first >= data + size_bytes) << "overlaps the next";
  EXPECT_TRUE(next == live_.begin() || std::prev(next)->first + std::prev(next)->second.buffer.size_bytes() <= data)
      << "overlaps the one before";
  for (const Use& use : uses_) {
    const bool overlaps = use.begin < data + size_bytes && data < use.begin + use.size_bytes;
    EXPECT_FALSE(overlaps && use.lane != lane && IsInUse(use)) << "work of lane " << use.lane << " may still use it";
  }
  requested_bytes_ += size_bytes;
  total_requested_bytes_ += size_bytes;
  peak_requested_bytes_ = std::max(peak_requested_bytes_, requested_bytes_);
  ++num_allocations_;
  live_.emplace(data, Live{*std::move(buffer), lane});
  return true;
}

void AllocatorModel::FreeNth(std::int64_t n) {
  const auto live = std::next(live_.begin(), n);
  const std::int64_t size_bytes = live->second.buffer.size_bytes();
  uses_.push_back({live->first, size_bytes, live->second.lane, lanes_[live->second.lane].queued.load()});
  requested_bytes_ -= size_bytes;
  live_.erase(live);
}

void AllocatorModel::Reserve(int lane, std::int64_t size_bytes) {
  if (!allocator_.Reserve(lane, size_bytes, nullptr).ok()) return;
  EXPECT_LE(allocator_.stats().allocated_bytes + size_bytes, allocator_.stats().limit_bytes);
}

void AllocatorModel::TakeRandomStep(std::mt19937_64& random, std::int64_t most_bytes) {
  const auto draw = [&random](std::int64_t end) { return static_cast<std::int64_t>(random() % end); };
  const int lane = static_cast<int>(draw(kLanes));
  const std::int64_t choice = draw(100);
  // All magnitudes alike.
  const std::int64_t size_bytes = std::min(1 + draw(std::int64_t{2} << draw(29)), most_bytes);
  if (choice < 52) {
    (void)Allocate(lane, size_bytes);
  } else if (choice < 90) {
    if (num_live() > 0) FreeNth(draw(num_live()));
  } else if (choice < 93) {
    QueueWork(lane);
  } else if (choice < 96) {
    CompleteWork(lane);
  } else if (choice < 98) {
    Reserve(lane, size_bytes);
  } else if (choice < 99) {
    EndReservation(lane);
  } else {
    allocator_.EmptyCache();
  }
}

void AllocatorModel::Check() {
  uses_.erase(std::remove_if(uses_.begin(), uses_.end(), [this](const Use& use) { return !IsInUse(use); }), uses_.end());
  for (const Use& use : uses_) EXPECT_TRUE(truth_.is_mapped(use.begin, use.size_bytes)) << "unmapped under queued work";
  for (const auto& [data, live] : live_) EXPECT_TRUE(truth_.is_mapped(data, live.buffer.size_bytes()));
  const MemorySnapshot snapshot = allocator_.snapshot();
  CheckTiling(snapshot);
  CheckStats(snapshot);
}

void AllocatorModel::CheckTiling(const MemorySnapshot& snapshot) const {
  std::int64_t num_live_blocks = 0;
  const char* previous_end = nullptr;
  for (const SegmentSnapshot& segment : snapshot.segments) {
    EXPECT_GE(segment.data, previous_end);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment.data) % kSegmentAlignmentBytes, 0u);
    const char* data = segment.data;
    bool previous_is_free = false;
    for (const SegmentSnapshot::Block& block : segment.blocks) {
      EXPECT_GT(block.size_bytes, 0);
      EXPECT_EQ(block.size_bytes % CachingAllocator::kGranularityBytes, 0);
      const bool is_free = block.use == BlockUse::kFree;
      EXPECT_FALSE(is_free && previous_is_free) << "free neighbours did not join";
      previous_is_free = is_free;
      if (block.use == BlockUse::kAllocated) {
        ++num_live_blocks;
        const auto live = live_.find(data);
        if (live == live_.end()) {
          ADD_FAILURE() << "a block that nobody holds";
        } else {
          EXPECT_EQ(live->second.buffer.size_bytes(), block.requested_bytes);
          EXPECT_GE(block.size_bytes, block.requested_bytes);
          EXPECT_EQ(live->second.lane, block.lane);
        }
      }
      data += block.size_bytes;
    }
    EXPECT_EQ(data, segment.data + segment.size_bytes) << "blocks do not tile their segment";
    previous_end = data;
  }
  EXPECT_EQ(num_live_blocks, num_live());
}

void AllocatorModel::CheckStats(const MemorySnapshot& snapshot) {
  const MemoryStats stats = allocator_.stats();
  ExpectSameCurrent(stats.all, StatsOf(snapshot, IsAny), "all");
  ExpectSameCurrent(stats.small_pool, StatsOf(snapshot, IsSmall), "small");
  ExpectSameCurrent(stats.large_pool, StatsOf(snapshot, IsLarge), "large");
  EXPECT_EQ(stats.small_pool.inactive_split_bytes.current + stats.large_pool.inactive_split_bytes.current,
            stats.all.inactive_split_bytes.current);
  EXPECT_EQ(stats.all.requested_bytes.current, requested_bytes_);
  EXPECT_EQ(stats.all.requested_bytes.peak, peak_requested_bytes_);
  EXPECT_EQ(stats.all.requested_bytes.allocated, total_requested_bytes_);
  EXPECT_EQ(stats.all.allocations.current, num_live());
  EXPECT_EQ(stats.all.allocations.allocated, num_allocations_);
  EXPECT_EQ(stats.out_of_memory_count, num_refusals_);
  EXPECT_EQ(stats.reserved_bytes, truth_.mapped_bytes());
  EXPECT_LE(stats.reserved_bytes, stats.limit_bytes);
  EXPECT_LE(stats.active_bytes, stats.reserved_bytes);
  peak_allocated_bytes_ = std::max(peak_allocated_bytes_, stats.allocated_bytes);
  EXPECT_EQ(stats.peak_allocated_bytes, peak_allocated_bytes_);
  if (!splits_exactly_) return;
  EXPECT_LE(stats.allocated_bytes + stats.promised_bytes, stats.limit_bytes) << "more was promised than there is";
  std::int64_t allocated_bytes = 0;
  for (const auto& [data, live] : live_) {
    allocated_bytes += RoundUp(live.buffer.size_bytes(), CachingAllocator::kGranularityBytes);
  }
  EXPECT_EQ(stats.allocated_bytes, allocated_bytes);
}

void AllocatorModel::CheckEnd() {
  while (num_live() > 0) FreeNth(0);
  for (int lane = 0; lane < kLanes; ++lane) {
    CompleteWork(lane);
    EndReservation(lane);
  }
  Check();
  for (const MemoryEvent& event : allocator_.snapshot().history) EXPECT_GT(event.size_bytes, 0) << "nothing happened";
  for (const SegmentSnapshot& segment : allocator_.snapshot().segments) {
    EXPECT_EQ(segment.blocks.size(), 1u) << "what is free did not become whole";
  }
  EXPECT_EQ(allocator_.stats().active_bytes, 0);
  EXPECT_EQ(allocator_.stats().promised_bytes, 0);
  EXPECT_EQ(allocator_.stats().inactive_split_bytes, 0);
  allocator_.EmptyCache();
  EXPECT_EQ(allocator_.stats().reserved_bytes, 0);
  EXPECT_EQ(allocator_.stats().segment_count, 0);
  EXPECT_EQ(truth_.mapped_bytes(), 0);
  EXPECT_TRUE(allocator_.snapshot().segments.empty());
}

}  // namespace ridgeline::device
