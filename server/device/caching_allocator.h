// A caching allocator in the manner of PyTorch's CUDACachingAllocator, over any source of memory.
//
//   Allocate(lane, size) ──► the lane's small or large pool: smallest free block that fits ──► split, rest stays free
//                               │ none
//                               ▼
//                            new segment from the source, within the budget
//                               │ no budget left, or the source has no more
//                               ▼
//                            cached segments that no queued work uses go back to the source; once more; RESOURCE_EXHAUSTED
//
// A segment is what the source maps; it is tiled by blocks. A freed block joins its free neighbours and waits in its lane's
// pool. Reuse is stream-ordered: work queued later on the same lane may get a block at once, other lanes never do.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "server/device/buffer.h"
#include "server/device/device.h"
#include "server/device/lane_progress.h"
#include "server/device/memory_source.h"

namespace ridgeline::device {

// One segment and the blocks that tile it, in order of address.
struct SegmentSnapshot {
  struct Block {
    std::int64_t size_bytes;
    std::int64_t requested_bytes;  // 0 = free
  };

  const char* data;
  std::int64_t size_bytes;
  int lane;
  std::vector<Block> blocks;
};

// Thread-safe.
class CachingAllocator final : public BufferOwner {
 public:
  static constexpr std::int64_t kGranularityBytes = 512;                             // sizes and addresses of blocks
  static constexpr std::int64_t kSmallRequestBytes = std::int64_t{1} << 20;          // up to this: from the small pool
  static constexpr std::int64_t kSmallSegmentBytes = std::int64_t{2} << 20;          // segments of the small pool
  static constexpr std::int64_t kLargeSegmentBytes = std::int64_t{20} << 20;         // segments of the large pool, for requests
  static constexpr std::int64_t kLargeSegmentRequestBytes = std::int64_t{10} << 20;  // below this; a larger one gets its own

  // Never holds more than `limit_bytes` (> 0) of `source`. `source` and `lanes` (one pool each) outlive the allocator.
  // `memory_name` (static) is what its errors call the memory.
  CachingAllocator(MemorySource& source, std::int64_t limit_bytes, absl::Span<const LaneProgress> lanes,
                   const char* memory_name = "device memory");
  ~CachingAllocator();  // all buffers have come back
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Uninitialised memory for work queued on `lane` from now on, aligned to kGranularityBytes. 0 bytes: an empty buffer.
  // Errors: INVALID_ARGUMENT for a negative size; RESOURCE_EXHAUSTED, reason OUT_OF_MEMORY.
  absl::StatusOr<Buffer> Allocate(int lane, std::int64_t size_bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  void Free(void* data) override ABSL_LOCKS_EXCLUDED(mutex_);

  MemoryStats stats() const ABSL_LOCKS_EXCLUDED(mutex_);
  void ResetPeaks() ABSL_LOCKS_EXCLUDED(mutex_);

  // Gives the unused segments of idle lanes back to the source; returns their bytes.
  std::int64_t EmptyCache() ABSL_LOCKS_EXCLUDED(mutex_);

  // In order of address.
  std::vector<SegmentSnapshot> Segments() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Pool;

  struct Block {
    char* data;
    std::int64_t size_bytes;
    std::int64_t requested_bytes;  // 0 = free
    std::int64_t last_use;         // free: the lane's items of work that may still use it, as a count of queued items
    Pool* pool;
    Block* previous;  // neighbours in the segment, or null
    Block* next;

    bool IsWholeSegment() const { return previous == nullptr && next == nullptr; }
  };

  // Best fit first; among equals the lowest address, so that high segments get a chance to empty.
  struct FitOrder {
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const {
      return a->size_bytes != b->size_bytes ? a->size_bytes < b->size_bytes : a->data < b->data;
    }
    bool operator()(const Block* block, std::int64_t size_bytes) const { return block->size_bytes < size_bytes; }
    bool operator()(std::int64_t size_bytes, const Block* block) const { return size_bytes < block->size_bytes; }
  };

  struct Pool {
    int lane;
    bool small;
    absl::btree_set<Block*, FitOrder> free;
  };

  Pool& PoolFor(int lane, std::int64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null if no free block of the pool fits.
  Block* FindFree(Pool& pool, std::int64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A new segment as a free block, or null.
  Block* Grow(Pool& pool, std::int64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Block* MapSegment(Pool& pool, std::int64_t segment_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives cached segments back until there is budget for `block_bytes`, or all of them if there was.
  std::int64_t MakeRoom(std::int64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Largest first, until `wanted_bytes` have gone.
  template <typename Releasable>
  std::int64_t UnmapCached(Pool& pool, std::int64_t wanted_bytes, Releasable releasable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Buffer Take(Block& block, std::int64_t size_bytes, std::int64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SplitAfter(Block& block, std::int64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Appends the next block of the segment, which is free, to `block`.
  void JoinNext(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void InsertFree(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveFree(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Block& AddBlock(const Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::int64_t LargestFreeBlockBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OutOfMemory(std::int64_t size_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::int64_t limit_bytes_;
  const absl::Span<const LaneProgress> lanes_;
  const char* const memory_name_;

  mutable base::Mutex mutex_;
  MemorySource& source_ ABSL_GUARDED_BY(mutex_);
  std::vector<Pool> pools_ ABSL_GUARDED_BY(mutex_);                         // small and large of lane 0, of lane 1, ...
  absl::node_hash_map<const void*, Block> blocks_ ABSL_GUARDED_BY(mutex_);  // by address: free ones too
  MemoryStats stats_ ABSL_GUARDED_BY(mutex_);  // what is counted as it happens; stats() adds what follows from it
  std::int64_t free_segment_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // in segments with no live allocation
};

}  // namespace ridgeline::device
