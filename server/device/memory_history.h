// The most recent events of an allocator, in a ring.
#pragma once

#include <time.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "server/device/memory_snapshot.h"

namespace ridgeline::device {

// Not thread-safe: its owner's mutex guards it.
class MemoryHistory {
 public:
  explicit MemoryHistory(std::int64_t max_events) : ring_(static_cast<std::size_t>(max_events)) {}

  bool is_kept() const { return !ring_.empty(); }

  // Stamps the event with the time.
  void Add(MemoryEvent event) {
    if (ring_.empty()) return;
    event.unix_nanoseconds = UnixNanoseconds();
    ring_[next_] = std::move(event);
    next_ = next_ + 1 == ring_.size() ? 0 : next_ + 1;
    if (num_events_ < ring_.size()) ++num_events_;
  }

  // Oldest first.
  std::vector<MemoryEvent> events() const {
    std::vector<MemoryEvent> events;
    events.reserve(num_events_);
    const std::size_t first = num_events_ < ring_.size() ? 0 : next_;
    for (std::size_t i = 0; i < num_events_; ++i) events.push_back(ring_[(first + i) % ring_.size()]);
    return events;
  }

 private:
  // To a few milliseconds. The exact time would cost as much as the allocation that it is noted for.
  static std::int64_t UnixNanoseconds() {
    timespec time = {};
    clock_gettime(CLOCK_REALTIME_COARSE, &time);
    return std::int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
  }

  std::vector<MemoryEvent> ring_;
  std::size_t next_ = 0;
  std::size_t num_events_ = 0;
};

}  // namespace ridgeline::device
