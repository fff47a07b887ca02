// What the engine tells Prometheus. All series exist from the start: a rate begins at zero, not at the first event.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/attention/attention.h"
#include "kernels/fused/fused.h"
#include "server/base/metrics.h"
#include "server/device/device.h"
#include "server/engine/kv_cache/resources.h"
#include "server/engine/load.h"
#include "server/engine/roofline.h"
#include "server/engine/scheduler_metrics.h"

namespace ridgeline::engine {

// The state of a GPU, as its monitoring gives it. One scrape at a time.
class GpuMetrics {
 public:
  // What `status` does not say gets no series.
  GpuMetrics(base::MetricsRegistry& registry, const device::GpuStatus& status);

  void Update(const device::GpuStatus& status) const;

 private:
  std::optional<base::Gauge> power_watts_;
  std::optional<base::Gauge> power_limit_watts_;
  std::optional<base::Gauge> temperature_celsius_;
  std::optional<base::Gauge> sm_clock_hertz_;
  std::optional<base::Gauge> memory_clock_hertz_;
  std::optional<base::Gauge> corrected_ecc_errors_;
  std::optional<base::Gauge> uncorrected_ecc_errors_;
  std::map<std::string, base::Gauge> throttled_;  // by reason
};

// Thread-safe, but for UpdateOnScrape.
class EngineMetrics {
 public:
  EngineMetrics(base::MetricsRegistry& registry, const device::Device& device, const Roofline& roofline);

  SchedulerMetrics scheduler() const { return scheduler_; }

  // A request has been answered.
  void CountAttend(absl::StatusCode outcome) const { Count(attend_outcomes_, outcome); }
  void CountAppend(absl::StatusCode outcome) const { Count(append_outcomes_, outcome); }
  void CountFuse(absl::StatusCode outcome) const { Count(fuse_outcomes_, outcome); }

  // A benchmark's point was measured, or skipped.
  void CountBenchmarkPoint(bool is_measured) const { (is_measured ? measured_points_ : skipped_points_).Increment(); }

  // A kernel has run.
  void CountAttendKernel(kernels::attention::Algorithm algorithm, absl::Duration kernel_time, std::int64_t flops,
                         std::int64_t bytes) const;
  void CountFuseKernel(kernels::fused::Op op, kernels::fused::Mode mode, absl::Duration kernel_time, std::int64_t flops,
                       std::int64_t bytes) const;

  // One scrape at a time.
  void UpdateOnScrape(const Load& load, const kv_cache::KvCacheStatistics& kv_caches, const device::Device& device);

 private:
  struct Kernel {
    void Count(absl::Duration kernel_time, std::int64_t num_flops, std::int64_t num_bytes) const;

    base::Histogram seconds;
    base::Counter flops;
    base::Counter bytes;
  };
  // A counter that follows a total kept elsewhere.
  struct MirroredCounter {
    void Follow(std::int64_t total);

    base::Counter counter;
    std::int64_t counted = 0;
  };

  // Of memory that an allocator of the device's has taken.
  struct Memory {
    base::Gauge allocated_bytes;
    base::Gauge reserved_bytes;
    base::Gauge limit_bytes;
  };

  static void Count(const std::vector<base::Counter>& outcomes, absl::StatusCode outcome);
  static Kernel AddKernel(base::MetricsRegistry& registry, const std::string& device, const char* operation,
                          const char* algorithm);
  std::array<Kernel, 2> attend_kernels_;                                   // by Algorithm
  std::array<std::vector<Kernel>, kernels::fused::kNumOps> fuse_kernels_;  // by Op and Mode
  std::vector<base::Counter> attend_outcomes_;                             // in the order of kOutcomes
  std::vector<base::Counter> append_outcomes_;                             // likewise
  std::vector<base::Counter> fuse_outcomes_;                               // likewise
  base::Counter measured_points_;
  base::Counter skipped_points_;
  SchedulerMetrics scheduler_;
  base::Gauge lanes_busy_;
  base::Gauge queue_requests_;
  base::Gauge admitted_bytes_;
  base::Gauge allocated_bytes_;
  base::Gauge reserved_bytes_;
  base::Gauge peak_allocated_bytes_;
  base::Gauge peak_reserved_bytes_;
  base::Gauge limit_bytes_;
  MirroredCounter retries_;
  MirroredCounter out_of_memory_;
  base::Gauge kv_caches_;
  base::Gauge kv_sequences_;
  base::Gauge kv_pages_used_;
  base::Gauge kv_pages_free_;
  base::Gauge kv_bytes_;
  MirroredCounter kv_expired_caches_;
  MirroredCounter kv_evicted_sequences_;
  MirroredCounter kv_copied_pages_;
  std::optional<Memory> pinned_memory_;  // of a device that has any
  std::optional<GpuMetrics> gpu_;        // likewise
};

}  // namespace ridgeline::engine
