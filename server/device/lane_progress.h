// How far each lane's queue has come: what tells memory that work may still touch from memory that can go.
#pragma once

#include <atomic>
#include <cstdint>

namespace ridgeline::device {

// Written by one lane, read by anyone. On a cache line of its own: lanes count side by side.
struct alignas(64) LaneProgress {
  std::atomic<std::int64_t> queued{0};     // items of work ever queued
  std::atomic<std::int64_t> completed{0};  // of these, run or skipped; stored with release order

  bool Idle() const { return HasCompleted(queued.load(std::memory_order_relaxed)); }

  // True once the first `num_items` items have completed; what they wrote is then visible.
  bool HasCompleted(std::int64_t num_items) const { return completed.load(std::memory_order_acquire) >= num_items; }
};

}  // namespace ridgeline::device
