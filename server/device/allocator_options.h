// How a caching allocator divides its memory.
#pragma once

#include <cstdint>
#include <limits>

namespace ridgeline::device {

struct AllocatorOptions {
  // One segment a pool grows in place, where the source can do that; false: fixed segments as the source maps them.
  bool growing_segments = true;

  // Sizes are rounded up to the next of this many equal steps between powers of two, a power of two itself; 0: to 512 bytes.
  // Coarser sizes fit more often, and waste more.
  int rounding_divisions = 0;

  // Blocks of fixed segments of this size and more are handed out whole, and only to requests of this size: large blocks stay
  // whole for large requests.
  std::int64_t max_split_bytes = std::numeric_limits<std::int64_t>::max();

  // Events kept for snapshots; 0: none.
  std::int64_t history_events = 16384;
};

}  // namespace ridgeline::device
