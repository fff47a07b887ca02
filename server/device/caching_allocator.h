// A caching allocator in the manner of PyTorch's CUDACachingAllocator, over any source of memory.
//
//   Allocate(lane, size) ──► small or large pool: the smallest block that fits, of what the lane freed or any lane may have
//                               │ none
//                               ▼
//                            events: blocks of other lanes whose work has completed are anybody's now
//                               │ still none
//                               ▼
//                            the segment grows in place by what a run of free blocks lacks, within the limit;
//                            a new segment where segments don't grow
//                               │ the limit is reached, or the source has no more
//                               ▼
//                            trim: free memory that no work uses goes back to the source; once more; RESOURCE_EXHAUSTED
//
// Nothing here waits. A block that is freed while its lane has queued work is pending: that lane may have it at once, since its
// work runs in order; other lanes when the lane's progress shows that the work has completed.
//
// Where segments grow, memory that lies free in holes moves to where it is needed before more is taken, so that what is
// reserved stays near the most that was ever allocated, however sizes vary.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "server/device/allocator_options.h"
#include "server/device/buffer.h"
#include "server/device/free_blocks.h"
#include "server/device/lane_progress.h"
#include "server/device/memory_block.h"
#include "server/device/memory_history.h"
#include "server/device/memory_segments.h"
#include "server/device/memory_snapshot.h"
#include "server/device/memory_source.h"
#include "server/device/memory_stats.h"

namespace ridgeline::device {

// Thread-safe.
class CachingAllocator final : public BufferOwner {
 public:
  static constexpr std::int64_t kGranularityBytes = 512;                             // sizes and addresses of blocks
  static constexpr std::int64_t kSmallRequestBytes = std::int64_t{1} << 20;          // up to this: from the small pool
  static constexpr std::int64_t kSmallSegmentBytes = std::int64_t{2} << 20;          // segments of the small pool, and growth
  static constexpr std::int64_t kLargeSegmentBytes = std::int64_t{20} << 20;         // likewise of the large pool, for requests
  static constexpr std::int64_t kLargeSegmentRequestBytes = std::int64_t{10} << 20;  // below this; a larger one gets its own

  // Never holds more than `limit_bytes` (> 0) of `source`. `source` and `lanes` outlive the allocator. `memory_name` (static)
  // is what its errors call the memory.
  CachingAllocator(MemorySource& source, std::int64_t limit_bytes, absl::Span<const LaneProgress> lanes,
                   const AllocatorOptions& options = {}, const char* memory_name = "device memory");
  ~CachingAllocator();  // all buffers have come back, and all work has completed
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Uninitialised memory for work queued on `lane` from now on, aligned to kGranularityBytes. 0 bytes: an empty buffer.
  // Errors: INVALID_ARGUMENT for a negative size; RESOURCE_EXHAUSTED, reason OUT_OF_MEMORY, with details.
  absl::StatusOr<Buffer> Allocate(int lane, std::int64_t size_bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  void Free(void* block) override ABSL_LOCKS_EXCLUDED(mutex_);

  // Promises `size_bytes` to what is allocated on `lane` until EndReservation: other allocations and promises leave as much
  // free, if not in one piece: where segments grow, a block is made of pieces of 2 MiB. Ends the lane's promise before.
  // `owner`, which may be null, is what snapshots name for the lane's memory from now on. Errors: RESOURCE_EXHAUSTED if that
  // much is not free; the lane then has no promise.
  absl::Status Reserve(int lane, std::int64_t size_bytes, std::shared_ptr<const MemoryOwner> owner) ABSL_LOCKS_EXCLUDED(mutex_);
  // What the promise has not been used for is anybody's again. Buffers stay.
  void EndReservation(int lane) ABSL_LOCKS_EXCLUDED(mutex_);

  MemoryStats stats() const ABSL_LOCKS_EXCLUDED(mutex_);
  void ResetPeaks() ABSL_LOCKS_EXCLUDED(mutex_);

  // Trim: gives free memory that no queued work uses back to the source; returns its bytes.
  std::int64_t EmptyCache() ABSL_LOCKS_EXCLUDED(mutex_);

  MemorySnapshot snapshot() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Pool {
    bool small;
    FreeBlocks free;                  // anybody's
    std::vector<FreeBlocks> pending;  // [lanes]
  };

  struct Lane {
    std::int64_t pending_bytes = 0;
    std::int64_t promised_bytes = 0;  // and not drawn
    std::uint64_t promise_id = 0;     // 0: none
    std::shared_ptr<const MemoryOwner> owner;
  };

  // Neighbours that one lane may have, free or without memory, which together hold a block.
  struct Run {
    Block* first;
    Block* last;
    char* begin;             // of the block, in `first`
    std::int64_t map_bytes;  // what must be mapped
  };

  // ---- The usual way.
  std::int64_t BlockBytes(std::int64_t size_bytes) const;
  Block* FindFit(Pool& pool, int lane, std::int64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Buffer Take(Block& block, int lane, std::int64_t size_bytes, std::int64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsWorthSplitting(const MemorySegment& segment, std::int64_t block_bytes, std::int64_t rest_bytes) const;
  // Puts a block that is in no set where it is found: one that nothing uses joins its free neighbours, one that is pending
  // stays as it is until its work has completed.
  void ParkFree(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ParkPending(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The opposite. A block that was pending is active no more.
  void Unpark(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts back what Unpark took, or a part of it.
  void ParkAgain(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // ---- When nothing fits (caching_allocator_growth.cc).
  Block* FindHarder(Pool& pool, int lane, std::int64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes pending blocks whose work has completed anybody's; false: there were none.
  bool Harvest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Harvest(int lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A block in no set that holds `block_bytes`: from a run, or a new segment; null.
  Block* Extend(Pool& pool, int lane, std::int64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Run> CheapestRun(const Pool& pool, int lane, std::int64_t block_bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Block* Materialise(const Run& run, std::int64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Block* Join(Block& first, const Block& last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Block* MapPart(Block& unmapped, char* begin, std::int64_t size_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Block* AddSegment(bool small, std::int64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Block* MapSegment(bool small, std::int64_t segment_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives free memory back until the limit leaves `size_bytes`; false: it never will.
  bool MakeRoom(std::int64_t size_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives back free memory that keeps what is reserved far above what was ever allocated, were `size_bytes` mapped.
  void ShedFor(std::int64_t size_bytes, std::int64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives free memory back, of the largest blocks first, until `wanted_bytes` have gone; returns how many went.
  std::int64_t Release(std::int64_t wanted_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::int64_t Release(Pool& pool, std::int64_t wanted_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::int64_t ReleaseBlock(Block& block, std::int64_t wanted_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // ---- Promises.
  // What the lane may still allocate within the limit and the promises of others.
  std::int64_t AvailableBytes(int lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropPromise(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // ---- Books.
  Pool& PoolOf(const MemorySegment& segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pools_[segment.small ? 0 : 1]; }
  // Calls `count` with the statistics of all and of the segment's pool, then brings what is split up to date.
  template <typename Count>
  void CountIn(MemorySegment& segment, Count&& count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountMapped(MemorySegment& segment, const MemorySegments::Change& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells the history what happened to a block.
  void Note(MemoryAction action, const Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells it what was mapped or given back.
  void NoteMapped(const MemorySegment& segment, char* data, std::int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::int64_t LargestFreeBlockBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The error of an allocation, which is counted; Shortage is the error alone.
  absl::Status OutOfMemory(int lane, std::int64_t size_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Shortage(std::int64_t size_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::int64_t limit_bytes_;
  const absl::Span<const LaneProgress> progress_;  // [lanes]
  const AllocatorOptions options_;
  const char* const memory_name_;

  mutable base::Mutex mutex_;
  MemorySegments segments_ ABSL_GUARDED_BY(mutex_);
  std::array<Pool, 2> pools_ ABSL_GUARDED_BY(mutex_);  // small, large
  std::vector<Lane> lanes_ ABSL_GUARDED_BY(mutex_);
  MemoryStats stats_ ABSL_GUARDED_BY(mutex_);  // what is counted as it happens; stats() adds what follows from it
  MemoryHistory history_ ABSL_GUARDED_BY(mutex_);
  std::int64_t pending_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t most_allocated_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // since the start or the last trim
  std::uint64_t num_promises_ ABSL_GUARDED_BY(mutex_) = 0;
  bool made_room_ ABSL_GUARDED_BY(mutex_) = false;  // for the block that is being looked for
};

}  // namespace ridgeline::device
