#include "server/engine/memory_metrics.h"

namespace ridgeline::engine {

void MirroredCounter::Follow(std::int64_t total) {
  counter.Increment(static_cast<double>(total - counted));
  counted = total;
}

MemoryMetrics::MemoryMetrics(base::MetricsRegistry& registry, const device::Device& device)
    : system_free_bytes_(registry.AddOptionalGauge(
          "ridgeline_device_memory_free_bytes",
          "Device memory that the driver (on a CPU the operating system) could still give to anybody.")),
      allocated_bytes_(registry.AddGauge("ridgeline_allocator_allocated_bytes", "Device memory in live allocations.")),
      requested_bytes_(
          registry.AddGauge("ridgeline_allocator_requested_bytes", "What was asked for in live allocations, before rounding.")),
      active_bytes_(registry.AddGauge("ridgeline_allocator_active_bytes",
                                      "Device memory in live allocations, or freed but still used by queued work.")),
      reserved_bytes_(registry.AddGauge("ridgeline_allocator_reserved_bytes", "Device memory taken from the system.")),
      peak_allocated_bytes_(registry.AddGauge("ridgeline_allocator_peak_allocated_bytes",
                                              "Most device memory in live allocations since start or reset.")),
      peak_reserved_bytes_(registry.AddGauge("ridgeline_allocator_peak_reserved_bytes",
                                             "Most device memory taken from the system since start or reset.")),
      inactive_split_bytes_(registry.AddGauge("ridgeline_allocator_inactive_split_bytes",
                                              "Free device memory in segments that are partly in use.")),
      largest_free_block_bytes_(registry.AddGauge("ridgeline_allocator_largest_free_block_bytes",
                                                  "Largest allocation that reserved memory alone could serve.")),
      limit_bytes_(registry.AddGauge("ridgeline_allocator_limit_bytes", "Hard limit on reserved device memory.")),
      fragmentation_(registry.AddGauge("ridgeline_allocator_fragmentation_ratio",
                                       "1 - largest free block / free reserved memory; 0 when nothing is free.")),
      segments_(registry.AddGauge("ridgeline_allocator_segments", "Segments of device memory held.")),
      live_allocations_(registry.AddGauge("ridgeline_allocator_live_allocations", "Live allocations.")),
      allocations_{.counter = registry.AddCounter("ridgeline_allocator_allocations_total", "Allocations made.")},
      retries_{.counter = registry.AddCounter("ridgeline_allocator_retries_total",
                                              "Allocations that succeeded only after cached memory was given back.")},
      out_of_memory_{.counter = registry.AddCounter("ridgeline_allocator_out_of_memory_total",
                                                    "Allocations refused for want of memory.")} {
  registry.AddGauge("ridgeline_device_memory_bytes", "Memory of the device; on a CPU, what the process may use of it.")
      .Set(static_cast<double>(device.info().memory_bytes));
  if (!device.pinned_memory_stats().has_value()) return;
  pinned_ = {
      .allocated_bytes = registry.AddGauge("ridgeline_pinned_allocated_bytes", "Pinned host memory in live results."),
      .reserved_bytes = registry.AddGauge("ridgeline_pinned_reserved_bytes", "Pinned host memory taken from the system."),
      .limit_bytes = registry.AddGauge("ridgeline_pinned_limit_bytes", "Hard limit on reserved pinned host memory.")};
}

void MemoryMetrics::Update(const device::Device& device) {
  const auto set = [](const base::Gauge& gauge, std::int64_t value) { gauge.Set(static_cast<double>(value)); };
  const device::MemoryStats memory = device.memory_stats();
  set(allocated_bytes_, memory.allocated_bytes);
  set(requested_bytes_, memory.requested_bytes);
  set(active_bytes_, memory.active_bytes);
  set(reserved_bytes_, memory.reserved_bytes);
  set(peak_allocated_bytes_, memory.peak_allocated_bytes);
  set(peak_reserved_bytes_, memory.peak_reserved_bytes);
  set(inactive_split_bytes_, memory.inactive_split_bytes);
  set(largest_free_block_bytes_, memory.largest_free_block_bytes);
  set(limit_bytes_, memory.limit_bytes);
  set(segments_, memory.segment_count);
  set(live_allocations_, memory.allocation_count);
  fragmentation_.Set(memory.fragmentation);
  allocations_.Follow(memory.total_allocation_count);
  retries_.Follow(memory.retries);
  out_of_memory_.Follow(memory.out_of_memory_count);
  const std::optional<std::int64_t> free_bytes = device.system_free_bytes();
  system_free_bytes_.Set(free_bytes.has_value() ? std::optional(static_cast<double>(*free_bytes)) : std::nullopt);
  if (!pinned_.has_value()) return;
  const device::MemoryStats pinned = device.pinned_memory_stats().value_or(device::MemoryStats());
  set(pinned_->allocated_bytes, pinned.allocated_bytes);
  set(pinned_->reserved_bytes, pinned.reserved_bytes);
  set(pinned_->limit_bytes, pinned.limit_bytes);
}

}  // namespace ridgeline::engine
