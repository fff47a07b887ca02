#include "server/device/caching_allocator.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/common/rounding.h"
#include "server/base/check.h"
#include "server/base/error.h"
#include "server/base/units.h"

namespace ridgeline::device {
namespace {

using kernels::RoundUp;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// Addresses cost nothing, and with four times as many as there is memory a hole that fits is hardly ever missing. Bounded: a
// process has 2^47 bytes of them.
constexpr std::int64_t kMostAddressBytes = std::int64_t{1} << 43;

std::int64_t AddressBytes(std::int64_t limit_bytes, const AllocatorOptions& options) {
  if (!options.growing_segments) return 0;
  return RoundUp(4 * std::min(limit_bytes, kMostAddressBytes / 4), kSegmentAlignmentBytes);
}

}  // namespace

CachingAllocator::CachingAllocator(MemorySource& source, std::int64_t limit_bytes, absl::Span<const LaneProgress> lanes,
                                   const AllocatorOptions& options, const char* memory_name)
    : limit_bytes_(limit_bytes),
      progress_(lanes),
      options_(options),
      memory_name_(memory_name),
      segments_(source, AddressBytes(limit_bytes, options)),
      pools_{Pool{.small = true, .free = {}, .pending = std::vector<FreeBlocks>(lanes.size())},
             Pool{.small = false, .free = {}, .pending = std::vector<FreeBlocks>(lanes.size())}},
      lanes_(lanes.size()),
      history_(options.history_events) {
  stats_.limit_bytes = limit_bytes;
}

CachingAllocator::~CachingAllocator() {
  base::MutexLock lock(&mutex_);
  RIDGELINE_CHECK(stats_.all.allocated_bytes.current == 0);
}

absl::StatusOr<Buffer> CachingAllocator::Allocate(int lane, std::int64_t size_bytes) {
  if (size_bytes < 0) return absl::InvalidArgumentError(absl::StrCat("cannot allocate ", size_bytes, " bytes"));
  if (size_bytes == 0) return Buffer();
  base::MutexLock lock(&mutex_);
  if (size_bytes > std::min(limit_bytes_, kMost / 2)) return OutOfMemory(lane, size_bytes);
  const std::int64_t block_bytes = BlockBytes(size_bytes);
  if (block_bytes > AvailableBytes(lane) && !(Harvest() && block_bytes <= AvailableBytes(lane))) {
    return OutOfMemory(lane, size_bytes);
  }
  Pool& pool = pools_[block_bytes <= kSmallRequestBytes ? 0 : 1];
  Block* block = FindFit(pool, lane, block_bytes);
  if (block == nullptr) block = FindHarder(pool, lane, block_bytes);
  if (block == nullptr) return OutOfMemory(lane, size_bytes);
  return Take(*block, lane, size_bytes, block_bytes);
}

std::int64_t CachingAllocator::BlockBytes(std::int64_t size_bytes) const {
  std::int64_t step_bytes = kGranularityBytes;
  if (options_.rounding_divisions > 1) {
    const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(size_bytes)));
    step_bytes = std::max(step_bytes, power / options_.rounding_divisions);
  }
  const std::int64_t coarse_bytes = RoundUp(size_bytes, step_bytes);
  return coarse_bytes <= limit_bytes_ ? coarse_bytes : RoundUp(size_bytes, kGranularityBytes);
}

Block* CachingAllocator::FindFit(Pool& pool, int lane, std::int64_t block_bytes) {
  Block* const own = pool.pending[lane].FindFit(block_bytes);
  Block* const common = pool.free.FindFit(block_bytes);
  // Of two that fit alike the lane's own, which is warm.
  Block* const block = own == nullptr || (common != nullptr && common->size_bytes < own->size_bytes) ? common : own;
  if (block == nullptr) return nullptr;
  const bool is_kept_whole = !block->segment->grows && block->size_bytes >= options_.max_split_bytes;
  const bool is_much_larger = block->size_bytes - block_bytes >= kLargeSegmentBytes;
  if (is_kept_whole && (block_bytes < options_.max_split_bytes || is_much_larger)) return nullptr;
  Unpark(*block);
  return block;
}

Buffer CachingAllocator::Take(Block& block, int lane_idx, std::int64_t size_bytes, std::int64_t block_bytes) {
  const bool is_split = IsWorthSplitting(*block.segment, block_bytes, block.size_bytes - block_bytes);
  Block* const rest = is_split ? &segments_.Split(block, block_bytes) : nullptr;
  block.state = BlockState::kLive;
  if (rest != nullptr) ParkAgain(*rest);
  Lane& lane = lanes_[lane_idx];
  block.lane = lane_idx;
  block.requested_bytes = size_bytes;
  block.drawn_bytes = std::min(lane.promised_bytes, block.size_bytes);
  block.promise_id = lane.promise_id;
  block.owner = lane.owner;
  lane.promised_bytes -= block.drawn_bytes;
  stats_.promised_bytes -= block.drawn_bytes;
  block.segment->active_bytes += block.size_bytes;
  CountIn(*block.segment, [&block](PoolMemoryStats& stats) {
    stats.allocated_bytes.Increase(block.size_bytes);
    stats.requested_bytes.Increase(block.requested_bytes);
    stats.active_bytes.Increase(block.size_bytes);
    stats.active_blocks.Increase(1);
    stats.allocations.Increase(1);
  });
  most_allocated_bytes_ = std::max(most_allocated_bytes_, stats_.all.allocated_bytes.current);
  Note(MemoryAction::kAllocate, block);
  return Buffer(this, &block, block.data, size_bytes);
}

bool CachingAllocator::IsWorthSplitting(const MemorySegment& segment, std::int64_t block_bytes, std::int64_t rest_bytes) const {
  if (segment.small || segment.grows) return rest_bytes > 0;
  // A rest that its own pool could never hand out stays with its block.
  return rest_bytes > kSmallRequestBytes && block_bytes < options_.max_split_bytes;
}

void CachingAllocator::Free(void* handle) {
  base::MutexLock lock(&mutex_);
  Block& block = *static_cast<Block*>(handle);
  RIDGELINE_CHECK(block.state == BlockState::kLive);
  Lane& lane = lanes_[block.lane];
  if (block.promise_id != 0 && block.promise_id == lane.promise_id) {
    lane.promised_bytes += block.drawn_bytes;
    stats_.promised_bytes += block.drawn_bytes;
  }
  const LaneProgress& progress = progress_[block.lane];
  block.last_use = progress.queued.load(std::memory_order_relaxed);
  const bool is_used = !progress.HasCompleted(block.last_use);
  if (!is_used) block.segment->active_bytes -= block.size_bytes;
  CountIn(*block.segment, [&block, is_used](PoolMemoryStats& stats) {
    stats.allocated_bytes.Decrease(block.size_bytes);
    stats.requested_bytes.Decrease(block.requested_bytes);
    stats.allocations.Decrease(1);
    if (is_used) return;
    stats.active_bytes.Decrease(block.size_bytes);
    stats.active_blocks.Decrease(1);
  });
  Note(is_used ? MemoryAction::kFreeRequested : MemoryAction::kFree, block);
  block.is_part = false;
  is_used ? ParkPending(block) : ParkFree(block);
}

void CachingAllocator::ParkFree(Block& block) {
  FreeBlocks& free = PoolOf(*block.segment).free;
  const auto is_free = [](const Block* other) { return other != nullptr && other->state == BlockState::kFree; };
  block.state = BlockState::kFree;
  block.owner = nullptr;
  Block* joined = &block;
  if (is_free(block.next)) {
    free.Erase(*block.next);
    segments_.JoinNext(block);
  }
  if (is_free(block.previous)) {
    joined = block.previous;
    free.Erase(*joined);
    segments_.JoinNext(*joined);
  }
  free.Insert(*joined);
}

void CachingAllocator::ParkPending(Block& block) {
  block.state = BlockState::kPending;
  PoolOf(*block.segment).pending[block.lane].Insert(block);
  lanes_[block.lane].pending_bytes += block.size_bytes;
  pending_bytes_ += block.size_bytes;
}

void CachingAllocator::Unpark(Block& block) {
  Pool& pool = PoolOf(*block.segment);
  if (block.state == BlockState::kFree) return pool.free.Erase(block);
  pool.pending[block.lane].Erase(block);
  lanes_[block.lane].pending_bytes -= block.size_bytes;
  pending_bytes_ -= block.size_bytes;
  block.segment->active_bytes -= block.size_bytes;
  CountIn(*block.segment, [&block](PoolMemoryStats& stats) {
    stats.active_bytes.Decrease(block.size_bytes);
    stats.active_blocks.Decrease(1);
  });
  if (!block.is_part) Note(MemoryAction::kFreeCompleted, block);
  block.owner = nullptr;
}

void CachingAllocator::ParkAgain(Block& block) {
  if (block.state == BlockState::kFree) return ParkFree(block);
  block.is_part = true;  // that its memory came free has been said
  block.segment->active_bytes += block.size_bytes;
  CountIn(*block.segment, [&block](PoolMemoryStats& stats) {
    stats.active_bytes.Increase(block.size_bytes);
    stats.active_blocks.Increase(1);
  });
  ParkPending(block);
}

// ---- Promises ---------------------------------------------------------------------------------------------------------------

absl::Status CachingAllocator::Reserve(int lane_idx, std::int64_t size_bytes, std::shared_ptr<const MemoryOwner> owner) {
  base::MutexLock lock(&mutex_);
  Lane& lane = lanes_[lane_idx];
  DropPromise(lane);
  lane.owner = std::move(owner);
  if (size_bytes > AvailableBytes(lane_idx) && !(Harvest() && size_bytes <= AvailableBytes(lane_idx))) {
    return Shortage(size_bytes);
  }
  lane.promise_id = ++num_promises_;
  lane.promised_bytes = size_bytes;
  stats_.promised_bytes += size_bytes;
  return absl::OkStatus();
}

void CachingAllocator::EndReservation(int lane_idx) {
  base::MutexLock lock(&mutex_);
  DropPromise(lanes_[lane_idx]);
  lanes_[lane_idx].owner = nullptr;
  Harvest(lane_idx);
}

void CachingAllocator::DropPromise(Lane& lane) {
  stats_.promised_bytes -= std::exchange(lane.promised_bytes, 0);
  lane.promise_id = 0;
}

std::int64_t CachingAllocator::AvailableBytes(int lane_idx) const {
  const Lane& lane = lanes_[lane_idx];
  const std::int64_t others_pending_bytes = pending_bytes_ - lane.pending_bytes;
  const std::int64_t others_promised_bytes = stats_.promised_bytes - lane.promised_bytes;
  return limit_bytes_ - stats_.all.allocated_bytes.current - others_pending_bytes - others_promised_bytes;
}

// ---- Books ------------------------------------------------------------------------------------------------------------------

template <typename Count>
void CachingAllocator::CountIn(MemorySegment& segment, Count&& count) {
  PoolMemoryStats& pool = segment.small ? stats_.small_pool : stats_.large_pool;
  count(stats_.all);
  count(pool);
  const std::int64_t split_bytes = segment.inactive_split_bytes();
  const std::int64_t change = split_bytes - std::exchange(segment.counted_split_bytes, split_bytes);
  stats_.all.inactive_split_bytes.Change(change);
  pool.inactive_split_bytes.Change(change);
}

void CachingAllocator::CountMapped(MemorySegment& segment, const MemorySegments::Change& change) {
  CountIn(segment, [&change](PoolMemoryStats& stats) {
    stats.reserved_bytes.Change(change.bytes);
    stats.segments.Change(change.ranges);
  });
}

void CachingAllocator::Note(MemoryAction action, const Block& block) {
  if (!history_.is_kept()) return;
  history_.Add({.action = action,
                .grows = block.segment->grows,
                .lane = block.lane,
                .data = block.data,
                .size_bytes = block.size_bytes,
                .owner = block.owner});
}

void CachingAllocator::NoteMapped(const MemorySegment& segment, char* data, std::int64_t bytes) {
  history_.Add({.action = bytes > 0 ? MemoryAction::kSegmentMapped : MemoryAction::kSegmentUnmapped,
                .grows = segment.grows,
                .data = data,
                .size_bytes = bytes > 0 ? bytes : -bytes});
}

std::int64_t CachingAllocator::LargestFreeBlockBytes() const {
  std::int64_t largest_bytes = 0;
  for (const Pool& pool : pools_) {
    largest_bytes = std::max(largest_bytes, pool.free.largest_bytes());
    for (const FreeBlocks& pending : pool.pending) largest_bytes = std::max(largest_bytes, pending.largest_bytes());
  }
  return largest_bytes;
}

absl::Status CachingAllocator::OutOfMemory(int lane, std::int64_t size_bytes) {
  ++stats_.out_of_memory_count;
  history_.Add({.action = MemoryAction::kOutOfMemory,
                .lane = lane,
                .size_bytes = size_bytes,
                .available_bytes = AvailableBytes(lane),
                .owner = lanes_[lane].owner});
  return Shortage(size_bytes);
}

absl::Status CachingAllocator::Shortage(std::int64_t size_bytes) const {
  const struct {
    const char* name;
    std::int64_t bytes;
  } details[] = {{"requested", size_bytes},
                 {"allocated", stats_.all.allocated_bytes.current},
                 {"reserved", stats_.all.reserved_bytes.current},
                 {"limit", limit_bytes_},
                 {"promised", stats_.promised_bytes},
                 {"largest free block", LargestFreeBlockBytes()}};
  std::string text = absl::StrCat("out of ", memory_name_);
  absl::string_view separator = ": ";
  for (const auto& detail : details) {
    absl::StrAppend(&text, separator, detail.name, " ", base::FormatBytes(detail.bytes));
    separator = ", ";
  }
  absl::Status status = base::WithReason(absl::ResourceExhaustedError(text), base::kReasonOutOfMemory);
  for (const auto& detail : details) {
    status = base::WithDetail(std::move(status), absl::StrCat(absl::StrReplaceAll(detail.name, {{" ", "_"}}), "_bytes"),
                              absl::StrCat(detail.bytes));
  }
  return status;
}

}  // namespace ridgeline::device
