// An allocator's segments and the blocks that tile them: what is mapped, split, joined and given back. Knows nothing of lanes,
// budgets or who gets what.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "server/device/memory_block.h"
#include "server/device/memory_source.h"

namespace ridgeline::device {

// Not thread-safe: its owner's mutex guards it.
class MemorySegments {
 public:
  // `source` outlives it. A segment that grows has `address_bytes` of addresses; 0: none grows.
  MemorySegments(MemorySource& source, std::int64_t address_bytes);
  ~MemorySegments();  // gives everything back
  MemorySegments(const MemorySegments&) = delete;
  MemorySegments& operator=(const MemorySegments&) = delete;

  // By how much an operation changed what is held.
  struct Change {
    std::int64_t bytes = 0;
    std::int64_t ranges = 0;  // of contiguous mapped memory
  };

  // The growing segment of a pool, one for small and one for large blocks; null: there is none, or no addresses for it.
  MemorySegment* Growing(bool small);

  // A segment of its own size, as one free block.
  absl::StatusOr<Block*> MapFixed(bool small, std::int64_t size_bytes);
  // Gives such a segment back, all of which is free.
  void UnmapFixed(Block& block);

  // Maps `size_bytes` of an unmapped or claimed block from `begin` on, both multiples of kSegmentAlignmentBytes, in chunks of
  // `chunk_bytes`; the block is what is now free. After an error nothing has changed.
  absl::StatusOr<Block*> MapPart(Block& unmapped, char* begin, std::int64_t size_bytes, std::int64_t chunk_bytes,
                                 Change& change);

  // What giving chunks back left of a free block: parts before and after them, or null.
  struct Remains {
    Block* front = nullptr;
    Block* back = nullptr;
    Change change;         // negative
    char* data = nullptr;  // what was given back
  };
  // Gives back whole chunks of a free block of a segment that grows, as few as `wanted_bytes` need, or all.
  Remains UnmapChunks(Block& block, std::int64_t wanted_bytes);

  // Cuts the block after `size_bytes`; the rest has its state.
  Block& Split(Block& block, std::int64_t size_bytes);
  // Appends the next block of the segment to `block`, which keeps its state.
  void JoinNext(Block& block);
  // Joins an unmapped block with unmapped neighbours.
  void JoinUnmapped(Block& block);

  // By address.
  const std::map<char*, MemorySegment>& segments() const { return segments_; }

 private:
  Block& NewBlock();
  void DeleteBlock(Block& block);
  MemorySegment& AddSegment(void* data, std::int64_t size_bytes, bool small, bool grows);

  MemorySource& source_;
  const std::int64_t address_bytes_;
  std::map<char*, MemorySegment> segments_;
  MemorySegment* growing_[2] = {nullptr, nullptr};  // large, small
  bool has_addresses_ = true;                       // none was refused
  std::deque<Block> storage_;
  std::vector<Block*> unused_;  // of the storage
};

}  // namespace ridgeline::device
