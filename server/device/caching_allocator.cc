#include "server/device/caching_allocator.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/rounding.h"
#include "server/base/check.h"
#include "server/base/error.h"
#include "server/base/units.h"

namespace ridgeline::device {
namespace {

using kernels::RoundUp;

constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

std::int64_t PreferredSegmentBytes(std::int64_t block_bytes) {
  if (block_bytes <= CachingAllocator::kSmallRequestBytes) return CachingAllocator::kSmallSegmentBytes;
  if (block_bytes < CachingAllocator::kLargeSegmentRequestBytes) return CachingAllocator::kLargeSegmentBytes;
  return RoundUp(block_bytes, kSegmentAlignmentBytes);
}

// A rest that its own pool could never hand out stays with its block.
bool IsWorthSplitting(bool small, std::int64_t rest_bytes) {
  return small ? rest_bytes > 0 : rest_bytes > CachingAllocator::kSmallRequestBytes;
}

}  // namespace

CachingAllocator::CachingAllocator(MemorySource& source, std::int64_t limit_bytes, absl::Span<const LaneProgress> lanes,
                                   const char* memory_name)
    : limit_bytes_(limit_bytes), lanes_(lanes), memory_name_(memory_name), source_(source) {
  base::MutexLock lock(&mutex_);
  for (int lane = 0; lane < static_cast<int>(lanes.size()); ++lane) {
    pools_.push_back({.lane = lane, .small = true, .free = {}});
    pools_.push_back({.lane = lane, .small = false, .free = {}});
  }
  stats_.limit_bytes = limit_bytes;
}

CachingAllocator::~CachingAllocator() {
  base::MutexLock lock(&mutex_);
  for (Pool& pool : pools_) UnmapCached(pool, kAll, [](const Block&) { return true; });
  RIDGELINE_CHECK(stats_.reserved_bytes == 0);
}

absl::StatusOr<Buffer> CachingAllocator::Allocate(int lane, std::int64_t size_bytes) {
  if (size_bytes < 0) return absl::InvalidArgumentError(absl::StrCat("cannot allocate ", size_bytes, " bytes"));
  if (size_bytes == 0) return Buffer();
  base::MutexLock lock(&mutex_);
  if (size_bytes > std::min(limit_bytes_, kAll - kSegmentAlignmentBytes)) return OutOfMemory(size_bytes);
  const std::int64_t block_bytes = RoundUp(size_bytes, kGranularityBytes);
  Pool& pool = PoolFor(lane, block_bytes);
  Block* block = FindFree(pool, block_bytes);
  if (block == nullptr) block = Grow(pool, block_bytes);
  if (block == nullptr && MakeRoom(block_bytes) > 0) {
    block = Grow(pool, block_bytes);
    if (block != nullptr) ++stats_.retries;
  }
  if (block == nullptr) return OutOfMemory(size_bytes);
  return Take(*block, size_bytes, block_bytes);
}

void CachingAllocator::Free(void* data) {
  base::MutexLock lock(&mutex_);
  const auto found = blocks_.find(data);
  RIDGELINE_CHECK(found != blocks_.end() && found->second.requested_bytes > 0);
  Block* block = &found->second;
  stats_.allocated_bytes -= block->size_bytes;
  stats_.requested_bytes -= std::exchange(block->requested_bytes, 0);
  --stats_.allocation_count;

  Block* const previous = block->previous;
  if (block->next != nullptr && block->next->requested_bytes == 0) {
    RemoveFree(*block->next);
    JoinNext(*block);
  }
  if (previous != nullptr && previous->requested_bytes == 0) {
    RemoveFree(*previous);
    JoinNext(*previous);
    block = previous;
  }
  block->last_use = lanes_[block->pool->lane].queued.load(std::memory_order_relaxed);
  InsertFree(*block);
}

MemoryStats CachingAllocator::stats() const {
  base::MutexLock lock(&mutex_);
  MemoryStats stats = stats_;
  const std::int64_t free_bytes = stats.reserved_bytes - stats.allocated_bytes;
  stats.active_bytes = stats.allocated_bytes;  // reuse is stream-ordered: what is freed is reusable at once
  stats.inactive_split_bytes = free_bytes - free_segment_bytes_;
  stats.largest_free_block_bytes = LargestFreeBlockBytes();
  if (free_bytes > 0) stats.fragmentation = 1 - static_cast<double>(stats.largest_free_block_bytes) / free_bytes;
  return stats;
}

void CachingAllocator::ResetPeaks() {
  base::MutexLock lock(&mutex_);
  stats_.peak_allocated_bytes = stats_.allocated_bytes;
  stats_.peak_reserved_bytes = stats_.reserved_bytes;
}

std::int64_t CachingAllocator::EmptyCache() {
  base::MutexLock lock(&mutex_);
  std::int64_t released_bytes = 0;
  for (Pool& pool : pools_) {
    if (!lanes_[pool.lane].Idle()) continue;
    released_bytes += UnmapCached(pool, kAll, [](const Block&) { return true; });
  }
  return released_bytes;
}

std::vector<SegmentSnapshot> CachingAllocator::Segments() const {
  base::MutexLock lock(&mutex_);
  std::vector<SegmentSnapshot> segments;
  for (const auto& [address, first] : blocks_) {
    if (first.previous != nullptr) continue;
    SegmentSnapshot& segment = segments.emplace_back();
    segment = {.data = first.data, .size_bytes = 0, .lane = first.pool->lane, .blocks = {}};
    for (const Block* block = &first; block != nullptr; block = block->next) {
      segment.blocks.push_back({.size_bytes = block->size_bytes, .requested_bytes = block->requested_bytes});
      segment.size_bytes += block->size_bytes;
    }
  }
  std::sort(segments.begin(), segments.end(), [](const auto& a, const auto& b) { return a.data < b.data; });
  return segments;
}

CachingAllocator::Pool& CachingAllocator::PoolFor(int lane, std::int64_t block_bytes) {
  return pools_[2 * lane + (block_bytes <= kSmallRequestBytes ? 0 : 1)];
}

CachingAllocator::Block* CachingAllocator::FindFree(Pool& pool, std::int64_t block_bytes) {
  const auto found = pool.free.lower_bound(block_bytes);
  return found == pool.free.end() ? nullptr : *found;
}

CachingAllocator::Block* CachingAllocator::Grow(Pool& pool, std::int64_t block_bytes) {
  const std::int64_t preferred_bytes = PreferredSegmentBytes(block_bytes);
  const std::int64_t smallest_bytes = RoundUp(block_bytes, kSegmentAlignmentBytes);
  Block* const block = MapSegment(pool, preferred_bytes);
  return block == nullptr && smallest_bytes < preferred_bytes ? MapSegment(pool, smallest_bytes) : block;
}

CachingAllocator::Block* CachingAllocator::MapSegment(Pool& pool, std::int64_t segment_bytes) {
  if (segment_bytes > limit_bytes_ - stats_.reserved_bytes) return nullptr;
  const absl::StatusOr<void*> data = source_.Map(segment_bytes);
  if (!data.ok()) return nullptr;
  stats_.reserved_bytes += segment_bytes;
  stats_.peak_reserved_bytes = std::max(stats_.peak_reserved_bytes, stats_.reserved_bytes);
  ++stats_.segment_count;
  Block& block = AddBlock({.data = static_cast<char*>(*data),
                           .size_bytes = segment_bytes,
                           .requested_bytes = 0,
                           .last_use = 0,
                           .pool = &pool,
                           .previous = nullptr,
                           .next = nullptr});
  InsertFree(block);
  return &block;
}

std::int64_t CachingAllocator::MakeRoom(std::int64_t block_bytes) {
  const std::int64_t budget_bytes = limit_bytes_ - stats_.reserved_bytes;
  const std::int64_t shortage_bytes = RoundUp(block_bytes, kSegmentAlignmentBytes) - budget_bytes;
  const std::int64_t wanted_bytes =
      shortage_bytes > 0 ? shortage_bytes : kAll;  // the source is short, we can't tell by how much
  std::int64_t released_bytes = 0;
  for (Pool& pool : pools_) {
    const LaneProgress& lane = lanes_[pool.lane];
    released_bytes += UnmapCached(pool, wanted_bytes - released_bytes,
                                  [&lane](const Block& block) { return lane.HasCompleted(block.last_use); });
  }
  return released_bytes;
}

template <typename Releasable>
std::int64_t CachingAllocator::UnmapCached(Pool& pool, std::int64_t wanted_bytes, Releasable releasable) {
  std::int64_t released_bytes = 0;
  for (auto it = pool.free.end(); it != pool.free.begin() && released_bytes < wanted_bytes;) {
    const Block& block = **--it;
    if (!block.IsWholeSegment() || !releasable(block)) continue;
    it = pool.free.erase(it);
    source_.Unmap(block.data, block.size_bytes);
    stats_.reserved_bytes -= block.size_bytes;
    --stats_.segment_count;
    free_segment_bytes_ -= block.size_bytes;
    released_bytes += block.size_bytes;
    blocks_.erase(block.data);
  }
  return released_bytes;
}

Buffer CachingAllocator::Take(Block& block, std::int64_t size_bytes, std::int64_t block_bytes) {
  RemoveFree(block);
  if (IsWorthSplitting(block.pool->small, block.size_bytes - block_bytes)) SplitAfter(block, block_bytes);
  block.requested_bytes = size_bytes;
  stats_.allocated_bytes += block.size_bytes;
  stats_.peak_allocated_bytes = std::max(stats_.peak_allocated_bytes, stats_.allocated_bytes);
  stats_.requested_bytes += size_bytes;
  ++stats_.allocation_count;
  ++stats_.total_allocation_count;
  return Buffer(this, block.data, size_bytes);
}

void CachingAllocator::SplitAfter(Block& block, std::int64_t block_bytes) {
  Block& rest = AddBlock({.data = block.data + block_bytes,
                          .size_bytes = block.size_bytes - block_bytes,
                          .requested_bytes = 0,
                          .last_use = block.last_use,
                          .pool = block.pool,
                          .previous = &block,
                          .next = block.next});
  if (rest.next != nullptr) rest.next->previous = &rest;
  block.next = &rest;
  block.size_bytes = block_bytes;
  InsertFree(rest);
}

void CachingAllocator::JoinNext(Block& block) {
  Block& next = *block.next;
  block.size_bytes += next.size_bytes;
  block.next = next.next;
  if (block.next != nullptr) block.next->previous = &block;
  blocks_.erase(next.data);
}

void CachingAllocator::InsertFree(Block& block) {
  block.pool->free.insert(&block);
  if (block.IsWholeSegment()) free_segment_bytes_ += block.size_bytes;
}

void CachingAllocator::RemoveFree(Block& block) {
  block.pool->free.erase(&block);
  if (block.IsWholeSegment()) free_segment_bytes_ -= block.size_bytes;
}

CachingAllocator::Block& CachingAllocator::AddBlock(const Block& block) {
  return blocks_.emplace(block.data, block).first->second;
}

std::int64_t CachingAllocator::LargestFreeBlockBytes() const {
  std::int64_t largest_bytes = 0;
  for (const Pool& pool : pools_) {
    if (!pool.free.empty()) largest_bytes = std::max(largest_bytes, (*pool.free.rbegin())->size_bytes);
  }
  return largest_bytes;
}

absl::Status CachingAllocator::OutOfMemory(std::int64_t size_bytes) {
  ++stats_.out_of_memory_count;
  return base::WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "out of ", memory_name_, ": requested ", base::FormatBytes(size_bytes), "; allocated ",
          base::FormatBytes(stats_.allocated_bytes), ", reserved ", base::FormatBytes(stats_.reserved_bytes), ", limit ",
          base::FormatBytes(limit_bytes_), ", largest free block ", base::FormatBytes(LargestFreeBlockBytes()))),
      base::kReasonOutOfMemory);
}

}  // namespace ridgeline::device
