// What an allocator counts, under the names that PyTorch gives in torch.cuda.memory_stats().
#pragma once

#include <algorithm>
#include <cstdint>

namespace ridgeline::device {

// One quantity over time.
struct MemoryStat {
  std::int64_t current = 0;
  std::int64_t peak = 0;       // of `current`, since the start or the last reset
  std::int64_t allocated = 0;  // sum of all increases
  std::int64_t freed = 0;      // sum of all decreases

  void Increase(std::int64_t amount) {
    current += amount;
    allocated += amount;
    peak = std::max(peak, current);
  }
  void Decrease(std::int64_t amount) {
    current -= amount;
    freed += amount;
  }
  void Change(std::int64_t amount) { amount >= 0 ? Increase(amount) : Decrease(-amount); }
  void ResetPeak() { peak = current; }
};

// Of one pool, or of all.
struct PoolMemoryStats {
  MemoryStat allocated_bytes;       // in live allocations, as rounded
  MemoryStat reserved_bytes;        // taken from the system or driver
  MemoryStat active_bytes;          // allocated, or freed while queued work may still use them
  MemoryStat inactive_split_bytes;  // free, in a segment that is partly active
  MemoryStat requested_bytes;       // in live allocations, as asked for
  MemoryStat allocations;           // live ones
  MemoryStat segments;              // contiguous ranges of reserved memory
  MemoryStat active_blocks;

  void ResetPeaks() {
    for (MemoryStat* stat : {&allocated_bytes, &reserved_bytes, &active_bytes, &inactive_split_bytes, &requested_bytes,
                             &allocations, &segments, &active_blocks}) {
      stat->ResetPeak();
    }
  }
};

struct MemoryStats {
  PoolMemoryStats all;
  PoolMemoryStats small_pool;  // allocations of at most 1 MiB
  PoolMemoryStats large_pool;

  // As in ridgeline.v1.MemoryStats; the first nine are of `all`.
  std::int64_t allocated_bytes = 0;
  std::int64_t reserved_bytes = 0;
  std::int64_t active_bytes = 0;
  std::int64_t requested_bytes = 0;
  std::int64_t peak_allocated_bytes = 0;
  std::int64_t peak_reserved_bytes = 0;
  std::int64_t inactive_split_bytes = 0;
  std::int64_t allocation_count = 0;
  std::int64_t segment_count = 0;
  std::int64_t total_allocation_count = 0;
  std::int64_t retries = 0;
  std::int64_t out_of_memory_count = 0;
  std::int64_t largest_free_block_bytes = 0;
  std::int64_t limit_bytes = 0;
  std::int64_t promised_bytes = 0;  // to requests under way, which have not drawn them yet
  double fragmentation = 0;
};

}  // namespace ridgeline::device
