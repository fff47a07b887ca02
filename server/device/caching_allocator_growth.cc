// What happens when no block fits: events, growth, trim; and what is told of it all.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/common/rounding.h"
#include "server/device/caching_allocator.h"

namespace ridgeline::device {
namespace {

using kernels::RoundUp;

constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

// Growth comes in this many chunks at most, each a call to the driver; the finer they are, the more of a hole can be given
// back.
constexpr std::int64_t kChunksOfGrowth = 8;

// Above the most that was ever allocated, growing segments hold on to this share of it, and some for rounding.
constexpr std::int64_t kSlackShare = 32;

std::int64_t WholeSteps(std::int64_t bytes) { return bytes / kSegmentAlignmentBytes * kSegmentAlignmentBytes; }

bool IsUsableBy(const Block& block, int lane) {
  return block.state == BlockState::kFree || block.state == BlockState::kUnmapped ||
         (block.state == BlockState::kPending && block.lane == lane);
}

}  // namespace

// ---- Events -----------------------------------------------------------------------------------------------------------------

bool CachingAllocator::Harvest() {
  bool any = false;
  for (int lane = 0; lane < static_cast<int>(lanes_.size()); ++lane) any |= Harvest(lane);
  return any;
}

bool CachingAllocator::Harvest(int lane) {
  if (lanes_[lane].pending_bytes == 0) return false;
  std::vector<Block*> completed;
  for (const Pool& pool : pools_) {
    pool.pending[lane].VisitLargestBinFirst([&](Block& block) {
      if (progress_[lane].HasCompleted(block.last_use)) completed.push_back(&block);
      return true;
    });
  }
  for (Block* const block : completed) {
    Unpark(*block);
    ParkFree(*block);
  }
  return !completed.empty();
}

// ---- Growth -----------------------------------------------------------------------------------------------------------------

Block* CachingAllocator::FindHarder(Pool& pool, int lane, std::int64_t block_bytes) {
  if (Harvest()) {
    if (Block* const block = FindFit(pool, lane, block_bytes)) return block;
  }
  made_room_ = false;
  Block* block = Extend(pool, lane, block_bytes);
  if (block == nullptr && Release(kAll) > 0) {
    made_room_ = true;
    block = Extend(pool, lane, block_bytes);
  }
  if (block != nullptr && made_room_) ++stats_.retries;
  return block;
}

Block* CachingAllocator::Extend(Pool& pool, int lane, std::int64_t block_bytes) {
  (void)segments_.Growing(pool.small);
  if (const std::optional<Run> run = CheapestRun(pool, lane, block_bytes)) return Materialise(*run, block_bytes);
  return AddSegment(pool.small, block_bytes);
}

std::optional<CachingAllocator::Run> CachingAllocator::CheapestRun(const Pool& pool, int lane, std::int64_t block_bytes) const {
  std::optional<Run> cheapest;
  for (const auto& [data, segment] : segments_.segments()) {
    if (segment.small != pool.small) continue;
    // A block that holds it by itself has been passed over: it is kept whole for larger ones.
    for (Block* first = segment.first; first != nullptr; first = first->next) {
      std::int64_t total_bytes = 0;
      std::int64_t map_bytes = 0;
      for (Block* last = first; last != nullptr && IsUsableBy(*last, lane); last = last->next) {
        total_bytes += last->size_bytes;
        if (!last->IsMapped()) map_bytes += last->size_bytes;
        if (total_bytes < block_bytes) continue;
        if (first == last && first->IsMapped()) break;
        // What is too much stays unmapped, at one end or the other.
        char* begin = first->data;
        const std::int64_t excess_bytes = total_bytes - block_bytes;
        if (!last->IsMapped()) {
          map_bytes -= WholeSteps(excess_bytes);
        } else if (!first->IsMapped()) {
          if (excess_bytes >= first->size_bytes) break;  // the run does without it: see the one that begins behind it
          const std::int64_t skipped_bytes = WholeSteps(excess_bytes);
          begin += skipped_bytes;
          map_bytes -= skipped_bytes;
        }
        if (!cheapest.has_value() || map_bytes < cheapest->map_bytes) cheapest = Run{first, last, begin, map_bytes};
        break;
      }
    }
  }
  return cheapest;
}

Block* CachingAllocator::Materialise(const Run& run, std::int64_t block_bytes) {
  struct Part {
    Block* block;
    BlockState state;
  };
  std::vector<Part> parts;
  for (Block* block = run.first;; block = block->next) {
    parts.push_back({block, block->state});
    if (block->IsMapped()) Unpark(*block);
    if (block == run.last) break;
  }
  // Nobody else's while room is made.
  for (const Part& part : parts) part.block->state = part.block->IsMapped() ? BlockState::kLive : BlockState::kClaimed;
  char* const end = run.begin + block_bytes;
  // What the block leaves of the last part stays anybody's, and may go to make room.
  if (run.last->IsMapped() && run.last->end() > end) {
    Block& rest = segments_.Split(*run.last, end - run.last->data);
    rest.state = parts.back().state;
    ParkAgain(rest);
  }
  bool is_mapped = run.map_bytes == 0;
  if (!is_mapped) {
    ShedFor(run.map_bytes, block_bytes);
    is_mapped = MakeRoom(run.map_bytes);
  }
  for (Part& part : parts) {
    if (!is_mapped || part.state != BlockState::kUnmapped) continue;
    char* const begin = std::max(part.block->data, run.begin);
    Block* const mapped =
        MapPart(*part.block, begin, RoundUp(std::min(part.block->end(), end) - begin, kSegmentAlignmentBytes));
    is_mapped = mapped != nullptr;
    if (is_mapped) part = {mapped, BlockState::kFree};
  }
  if (is_mapped) {
    parts.back().block->state = parts.back().state;
    return Join(*parts.front().block, *parts.back().block);
  }
  for (const Part& part : parts) {
    part.block->state = part.state;
    part.state == BlockState::kUnmapped ? segments_.JoinUnmapped(*part.block) : ParkAgain(*part.block);
  }
  return nullptr;
}

// What the last of them does not give to the caller is as the last one was.
Block* CachingAllocator::Join(Block& first, const Block& last) {
  first.state = last.state;
  first.lane = last.lane;
  first.last_use = last.last_use;
  const char* const end = last.end();
  while (first.end() != end) segments_.JoinNext(first);
  return &first;
}

Block* CachingAllocator::MapPart(Block& unmapped, char* begin, std::int64_t size_bytes) {
  const std::int64_t chunk_bytes =
      std::max(kSegmentAlignmentBytes, RoundUp(size_bytes / kChunksOfGrowth, kSegmentAlignmentBytes));
  MemorySegment& segment = *unmapped.segment;
  MemorySegments::Change change;
  const absl::StatusOr<Block*> mapped = segments_.MapPart(unmapped, begin, size_bytes, chunk_bytes, change);
  if (!mapped.ok()) return nullptr;
  CountMapped(segment, change);
  NoteMapped(segment, begin, size_bytes);
  return *mapped;
}

Block* CachingAllocator::AddSegment(bool small, std::int64_t block_bytes) {
  const std::int64_t tight_bytes = RoundUp(block_bytes, kSegmentAlignmentBytes);
  std::int64_t usual_bytes = tight_bytes;
  if (small) usual_bytes = kSmallSegmentBytes;
  if (!small && block_bytes < kLargeSegmentRequestBytes) usual_bytes = kLargeSegmentBytes;
  for (const std::int64_t bytes : {usual_bytes, tight_bytes}) {
    if (bytes > limit_bytes_ - stats_.all.reserved_bytes.current) continue;
    if (Block* const block = MapSegment(small, bytes)) return block;
  }
  return MakeRoom(tight_bytes) ? MapSegment(small, tight_bytes) : nullptr;
}

Block* CachingAllocator::MapSegment(bool small, std::int64_t segment_bytes) {
  const absl::StatusOr<Block*> block = segments_.MapFixed(small, segment_bytes);
  if (!block.ok()) return nullptr;
  CountMapped(*(*block)->segment, {.bytes = segment_bytes, .ranges = 1});
  NoteMapped(*(*block)->segment, (*block)->data, segment_bytes);
  return *block;
}

// ---- Trim -------------------------------------------------------------------------------------------------------------------

bool CachingAllocator::MakeRoom(std::int64_t size_bytes) {
  const std::int64_t shortage_bytes = size_bytes - (limit_bytes_ - stats_.all.reserved_bytes.current);
  if (shortage_bytes <= 0) return true;
  made_room_ = Release(shortage_bytes) > 0;
  return size_bytes <= limit_bytes_ - stats_.all.reserved_bytes.current;
}

void CachingAllocator::ShedFor(std::int64_t size_bytes, std::int64_t block_bytes) {
  const std::int64_t most_bytes = std::max(most_allocated_bytes_, stats_.all.allocated_bytes.current + block_bytes);
  const std::int64_t wanted_bytes = most_bytes + most_bytes / kSlackShare + 2 * kSegmentAlignmentBytes;
  const std::int64_t excess_bytes = stats_.all.reserved_bytes.current + size_bytes - wanted_bytes;
  if (excess_bytes > 0) Release(excess_bytes);
}

std::int64_t CachingAllocator::Release(std::int64_t wanted_bytes) {
  std::int64_t released_bytes = 0;
  for (Pool& pool : {std::ref(pools_[1]), std::ref(pools_[0])}) {
    if (released_bytes < wanted_bytes) released_bytes += Release(pool, wanted_bytes - released_bytes);
  }
  return released_bytes;
}

std::int64_t CachingAllocator::Release(Pool& pool, std::int64_t wanted_bytes) {
  std::vector<Block*> blocks;
  pool.free.VisitLargestBinFirst([&blocks](Block& block) {
    if (block.size_bytes >= kSegmentAlignmentBytes) blocks.push_back(&block);
    return 2 * block.size_bytes >= kSegmentAlignmentBytes;
  });
  std::sort(blocks.begin(), blocks.end(), [](const Block* a, const Block* b) { return a->size_bytes > b->size_bytes; });
  std::int64_t released_bytes = 0;
  for (Block* const block : blocks) {
    if (released_bytes >= wanted_bytes) break;
    released_bytes += ReleaseBlock(*block, wanted_bytes - released_bytes);
  }
  return released_bytes;
}

std::int64_t CachingAllocator::ReleaseBlock(Block& block, std::int64_t wanted_bytes) {
  MemorySegment& segment = *block.segment;
  if (!segment.grows && block.size_bytes < segment.size_bytes) return 0;
  Unpark(block);
  if (!segment.grows) {
    const std::int64_t bytes = block.size_bytes;
    NoteMapped(segment, block.data, -bytes);
    CountMapped(segment, {.bytes = -bytes, .ranges = -1});
    segments_.UnmapFixed(block);
    return bytes;
  }
  const MemorySegments::Remains remains = segments_.UnmapChunks(block, wanted_bytes);
  CountMapped(segment, remains.change);
  if (remains.change.bytes < 0) NoteMapped(segment, remains.data, remains.change.bytes);
  for (Block* const left : {remains.front, remains.back}) {
    if (left != nullptr) ParkFree(*left);
  }
  return -remains.change.bytes;
}

std::int64_t CachingAllocator::EmptyCache() {
  base::MutexLock lock(&mutex_);
  Harvest();
  most_allocated_bytes_ = stats_.all.allocated_bytes.current;
  return Release(kAll);
}

// ---- What is told -----------------------------------------------------------------------------------------------------------

MemoryStats CachingAllocator::stats() const {
  base::MutexLock lock(&mutex_);
  MemoryStats stats = stats_;
  const PoolMemoryStats& all = stats.all;
  stats.allocated_bytes = all.allocated_bytes.current;
  stats.reserved_bytes = all.reserved_bytes.current;
  stats.active_bytes = all.active_bytes.current;
  stats.requested_bytes = all.requested_bytes.current;
  stats.peak_allocated_bytes = all.allocated_bytes.peak;
  stats.peak_reserved_bytes = all.reserved_bytes.peak;
  stats.inactive_split_bytes = all.inactive_split_bytes.current;
  stats.allocation_count = all.allocations.current;
  stats.segment_count = all.segments.current;
  stats.total_allocation_count = all.allocations.allocated;
  stats.largest_free_block_bytes = LargestFreeBlockBytes();
  const std::int64_t free_bytes = stats.reserved_bytes - stats.allocated_bytes;
  if (free_bytes > 0) stats.fragmentation = 1 - static_cast<double>(stats.largest_free_block_bytes) / free_bytes;
  return stats;
}

void CachingAllocator::ResetPeaks() {
  base::MutexLock lock(&mutex_);
  for (PoolMemoryStats* const stats : {&stats_.all, &stats_.small_pool, &stats_.large_pool}) stats->ResetPeaks();
}

MemorySnapshot CachingAllocator::snapshot() const {
  base::MutexLock lock(&mutex_);
  MemorySnapshot snapshot{.history = history_.events(),
                          .limit_bytes = limit_bytes_,
                          .grows = options_.growing_segments,
                          .rounding_divisions = options_.rounding_divisions,
                          .max_split_bytes = options_.max_split_bytes};
  for (const auto& [data, segment] : segments_.segments()) {
    bool is_new_range = true;
    for (const Block* block = segment.first; block != nullptr; block = block->next) {
      if (!block->IsMapped()) {
        is_new_range = true;
        continue;
      }
      if (std::exchange(is_new_range, false)) {
        snapshot.segments.push_back(
            {.data = block->data, .size_bytes = 0, .small = segment.small, .grows = segment.grows, .blocks = {}});
      }
      SegmentSnapshot& range = snapshot.segments.back();
      range.size_bytes += block->size_bytes;
      const bool is_live = block->state == BlockState::kLive;
      const bool is_pending = block->state == BlockState::kPending;
      range.blocks.push_back({.size_bytes = block->size_bytes,
                              .requested_bytes = is_live ? block->requested_bytes : 0,
                              .use = is_live      ? BlockUse::kAllocated
                                     : is_pending ? BlockUse::kAwaitingFree
                                                  : BlockUse::kFree,
                              .lane = is_live || is_pending ? block->lane : -1,
                              .owner = is_live || is_pending ? block->owner : nullptr});
    }
  }
  return snapshot;
}

}  // namespace ridgeline::device
