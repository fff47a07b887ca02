// What the allocators of device memory and of pinned host memory tell Prometheus.
#pragma once

#include <cstdint>
#include <optional>

#include "server/base/metrics.h"
#include "server/device/device.h"

namespace ridgeline::engine {

// A counter that follows a total kept elsewhere. One thread at a time.
struct MirroredCounter {
  void Follow(std::int64_t total);

  base::Counter counter;
  std::int64_t counted = 0;
};

// Three truths about the memory of one device: what the driver could still give (system_free), what we have taken of it
// (reserved), and what of that is in use (allocated). One scrape at a time.
class MemoryMetrics {
 public:
  MemoryMetrics(base::MetricsRegistry& registry, const device::Device& device);

  void Update(const device::Device& device);

 private:
  // Of an allocator.
  struct Pinned {
    base::Gauge allocated_bytes;
    base::Gauge reserved_bytes;
    base::Gauge limit_bytes;
  };

  base::OptionalGauge system_free_bytes_;
  base::Gauge allocated_bytes_;
  base::Gauge requested_bytes_;
  base::Gauge active_bytes_;
  base::Gauge reserved_bytes_;
  base::Gauge peak_allocated_bytes_;
  base::Gauge peak_reserved_bytes_;
  base::Gauge inactive_split_bytes_;
  base::Gauge largest_free_block_bytes_;
  base::Gauge limit_bytes_;
  base::Gauge fragmentation_;
  base::Gauge segments_;
  base::Gauge live_allocations_;
  MirroredCounter allocations_;
  MirroredCounter retries_;
  MirroredCounter out_of_memory_;
  std::optional<Pinned> pinned_;  // of a device that has any
};

}  // namespace ridgeline::engine
