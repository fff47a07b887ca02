// An allocator's memory at one moment, and how it came to be so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ridgeline::device {

// Whom memory is for.
struct MemoryOwner {
  std::string operation;   // "Attend"
  std::string request_id;  // as in the call's trailing metadata; empty where it is nobody's
};

enum class MemoryAction : std::uint8_t {
  kAllocate,
  kFree,             // and no queued work uses it any more
  kFreeRequested,    // queued work may still use it
  kFreeCompleted,    // now it does no more, or other work of the same lane has it
  kSegmentMapped,    // memory taken from the system or driver: a whole segment, or a chunk of one that grows
  kSegmentUnmapped,  // given back
  kOutOfMemory,
};

struct MemoryEvent {
  MemoryAction action = MemoryAction::kAllocate;
  bool grows = false;  // of a segment's events: it grows in place
  int lane = 0;        // whose; the number of lanes: memory that all may use
  const char* data = nullptr;
  std::int64_t size_bytes = 0;
  std::int64_t unix_nanoseconds = 0;
  std::int64_t available_bytes = 0;                    // of kOutOfMemory: what the limit leaves
  std::shared_ptr<const MemoryOwner> owner = nullptr;  // may be null
};

enum class BlockUse : std::uint8_t { kFree, kAwaitingFree, kAllocated };

// One contiguous range of memory and the blocks that tile it, in order of address.
struct SegmentSnapshot {
  struct Block {
    std::int64_t size_bytes;
    std::int64_t requested_bytes;  // 0 unless it is allocated
    BlockUse use;
    int lane;                                  // of one that is free: whose last event is not known
    std::shared_ptr<const MemoryOwner> owner;  // of one that is allocated; may be null
  };

  const char* data;
  std::int64_t size_bytes;
  bool small;
  bool grows;
  std::vector<Block> blocks = {};
};

struct MemorySnapshot {
  std::vector<SegmentSnapshot> segments = {};  // in order of address
  std::vector<MemoryEvent> history = {};       // the most recent, oldest first
  std::int64_t limit_bytes = 0;
  bool grows = false;
  int rounding_divisions = 0;
  std::int64_t max_split_bytes = 0;
};

}  // namespace ridgeline::device
