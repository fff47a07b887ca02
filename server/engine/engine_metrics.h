// What the engine tells Prometheus. All series exist from the start: a rate begins at zero, not at the first event.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/attention/attention.h"
#include "kernels/fused/fused.h"
#include "server/base/metrics.h"
#include "server/device/device.h"
#include "server/engine/benchmark_metrics.h"
#include "server/engine/gpu_metrics.h"
#include "server/engine/kv_cache/resources.h"
#include "server/engine/load.h"
#include "server/engine/memory_metrics.h"
#include "server/engine/report.h"
#include "server/engine/roofline.h"
#include "server/engine/scheduler_metrics.h"

namespace ridgeline::engine {

// Thread-safe, but for UpdateOnScrape.
class EngineMetrics {
 public:
  EngineMetrics(base::MetricsRegistry& registry, const device::Device& device, const Roofline& roofline);

  SchedulerMetrics scheduler() const { return scheduler_; }

  // A request has been answered.
  void CountAttend(absl::StatusCode outcome) const { Count(attend_outcomes_, outcome); }
  void CountAppend(absl::StatusCode outcome) const { Count(append_outcomes_, outcome); }
  void CountFuse(absl::StatusCode outcome) const { Count(fuse_outcomes_, outcome); }

  // A launch's kernels have run; `report` is the launch's, complete.
  void CountAttendKernel(kernels::attention::Algorithm algorithm, const ExecutionReport& report) const;
  void CountFuseKernel(kernels::fused::Op op, kernels::fused::Mode mode, const ExecutionReport& report) const;

  BenchmarkMetrics& benchmarks() { return benchmarks_; }

  // One scrape at a time.
  void UpdateOnScrape(const Load& load, const absl::Status& health, const kv_cache::KvCacheStatistics& kv_caches,
                      const device::Device& device);

 private:
  struct Kernel {
    void Count(const ExecutionReport& report) const;

    base::Histogram seconds;
    base::Histogram roof_fraction;
    base::Counter flops;
    base::Counter bytes;
  };
  struct KvCacheMetrics {
    void Update(const kv_cache::KvCacheStatistics& statistics);

    base::Gauge caches, sequences, clients, used_pages, free_pages, bytes;
    MirroredCounter expired_caches, evicted_sequences, copied_pages;
  };

  static void Count(const std::vector<base::Counter>& outcomes, absl::StatusCode outcome);
  static Kernel AddKernel(base::MetricsRegistry& registry, const std::string& device, const char* operation,
                          const char* algorithm);
  static KvCacheMetrics AddKvCaches(base::MetricsRegistry& registry);

  std::array<Kernel, 2> attend_kernels_;                                   // by Algorithm
  std::array<std::vector<Kernel>, kernels::fused::kNumOps> fuse_kernels_;  // by Op and Mode
  std::vector<base::Counter> attend_outcomes_;                             // in the order of kOutcomes
  std::vector<base::Counter> append_outcomes_;                             // likewise
  std::vector<base::Counter> fuse_outcomes_;                               // likewise
  SchedulerMetrics scheduler_;
  base::Gauge lanes_busy_;
  base::Gauge queue_requests_;
  base::Gauge admitted_bytes_;
  base::Gauge running_requests_;
  base::Gauge silence_seconds_;
  MirroredCounter requests_quota_refusals_;
  MirroredCounter bytes_quota_refusals_;
  base::Gauge healthy_;
  base::Gauge draining_;
  MemoryMetrics memory_;
  KvCacheMetrics kv_caches_;
  BenchmarkMetrics benchmarks_;
  std::optional<GpuMetrics> gpu_;  // of a device whose monitoring answered at start
};

}  // namespace ridgeline::engine
