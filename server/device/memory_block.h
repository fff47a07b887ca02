// The pieces of an allocator's memory: address ranges of segments, tiled by blocks.
//
//   segment that grows   │ live │ free │ live │  unmapped  │ pending │ free │          unmapped, to its end          │
//                        └─ chunk ─┴─ chunk ──┘            └──── chunk ─────┘
//   fixed segment        │ live │ free │ live │ free │     all of it mapped, by one call
//
// A chunk is what one call mapped and what one call can take back: only where all of it is free.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "server/device/memory_snapshot.h"

namespace ridgeline::device {

enum class BlockState : std::uint8_t {
  kUnmapped,  // addresses without memory
  kClaimed,   // likewise, about to get some
  kFree,      // any lane may have it
  kPending,   // freed while its lane had queued work, which may still use it: the lane may have it, others not yet
  kLive,
};

struct MemorySegment;

struct Block {
  char* data = nullptr;
  std::int64_t size_bytes = 0;
  BlockState state = BlockState::kUnmapped;
  Block* previous = nullptr;  // neighbours in the segment, or null
  Block* next = nullptr;
  MemorySegment* segment = nullptr;
  Block* free_previous = nullptr;  // see FreeBlocks
  Block* free_next = nullptr;

  int lane = -1;                     // live and pending: whose work uses it
  std::int64_t last_use = 0;         // pending: the lane's items of work that may still use it, as a count of queued items
  bool is_part = false;              // pending: what a smaller block left of one
  std::int64_t requested_bytes = 0;  // live
  std::int64_t drawn_bytes = 0;      // live: of its lane's promise
  std::uint64_t promise_id = 0;      // live: which promise
  std::shared_ptr<const MemoryOwner> owner;  // live and pending; may be null

  bool IsMapped() const { return state != BlockState::kUnmapped && state != BlockState::kClaimed; }
  char* end() const { return data + size_bytes; }
};

struct MemorySegment {
  char* data = nullptr;
  std::int64_t size_bytes = 0;  // of addresses
  bool small = false;           // which pool's
  bool grows = false;
  Block* first = nullptr;
  std::map<char*, std::int64_t> chunks;  // of one that grows: their bytes, by address
  std::int64_t mapped_bytes = 0;
  std::int64_t active_bytes = 0;         // live and pending
  std::int64_t counted_split_bytes = 0;  // inactive_split_bytes() as the statistics have it

  // Free bytes beside active ones.
  std::int64_t inactive_split_bytes() const { return active_bytes > 0 ? mapped_bytes - active_bytes : 0; }
};

}  // namespace ridgeline::device
