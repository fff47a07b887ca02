#include "server/engine/engine_metrics.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "kernels/common/data_type.h"
#include "kernels/fused/op_info.h"
#include "server/base/version.h"

namespace ridgeline::engine {
namespace {

using base::Labels;
using base::MetricsRegistry;
using kernels::attention::Algorithm;
using kernels::fused::Mode;
using kernels::fused::Op;

struct Outcome {
  absl::StatusCode code;
  const char* label;
};

// The last stands for every code that is not listed.
constexpr std::array<Outcome, 9> kOutcomes = {{{absl::StatusCode::kOk, "ok"},
                                               {absl::StatusCode::kInvalidArgument, "invalid_argument"},
                                               {absl::StatusCode::kNotFound, "not_found"},
                                               {absl::StatusCode::kUnimplemented, "unimplemented"},
                                               {absl::StatusCode::kResourceExhausted, "resource_exhausted"},
                                               {absl::StatusCode::kUnavailable, "unavailable"},
                                               {absl::StatusCode::kDeadlineExceeded, "deadline_exceeded"},
                                               {absl::StatusCode::kCancelled, "cancelled"},
                                               {absl::StatusCode::kInternal, "internal"}}};

constexpr char kPoints[] = "ridgeline_benchmark_points_total";
constexpr char kPointsHelp[] = "Points of benchmarks, by outcome: measured, or skipped with a reason.";

constexpr char kAttend[] = "attend";
constexpr char kAppend[] = "append_key_value";
constexpr char kFuse[] = "fuse";
constexpr char kPagesHelp[] = "Pages of all KV caches, by whether a sequence uses them.";

void ExportBuildInfo(MetricsRegistry& registry, const device::DeviceInfo& info) {
  registry
      .AddGauge("ridgeline_build_info", "Always 1; the labels say what runs on what.",
                {{"version", std::string(base::Version())}, {"device", info.name}, {"instruction_set", info.instruction_set}})
      .Set(1);
}

// Peaks do not change while the daemon runs. A theoretical peak that the hardware does not tell has no series.
void ExportRoofline(MetricsRegistry& registry, const Roofline& roofline) {
  const auto export_bandwidth = [&](const char* kind, double bytes_per_second) {
    if (bytes_per_second <= 0) return;
    registry
        .AddGauge("ridgeline_roofline_bytes_per_second", "Peak bandwidth of device memory, read plus written.",
                  {{"device", roofline.device}, {"kind", kind}})
        .Set(bytes_per_second);
  };
  const auto export_rate = [&](const char* kind, const char* data_type, double flops_per_second) {
    if (flops_per_second <= 0) return;
    registry
        .AddGauge("ridgeline_roofline_flops_per_second", "Peak rate of matrix products, by type of their inputs.",
                  {{"device", roofline.device}, {"kind", kind}, {"data_type", data_type}})
        .Set(flops_per_second);
  };
  export_bandwidth("measured", roofline.bytes_per_second);
  export_bandwidth("theoretical", roofline.theoretical_bytes_per_second);
  for (const ComputeRoof& roof : roofline.compute_roofs) {
    export_rate("measured", Name(roof.data_type), roof.flops_per_second);
    export_rate("theoretical", Name(roof.data_type), roof.theoretical_flops_per_second);
  }
}

std::vector<base::Counter> AddOutcomes(MetricsRegistry& registry, const char* operation) {
  std::vector<base::Counter> counters;
  for (const Outcome& outcome : kOutcomes) {
    counters.push_back(registry.AddCounter("ridgeline_requests_total", "Requests answered by the engine, by status code.",
                                           {{"operation", operation}, {"outcome", outcome.label}}));
  }
  return counters;
}

template <typename T>
std::optional<base::Gauge> AddGaugeIfKnown(MetricsRegistry& registry, const char* name, const char* help,
                                           const std::optional<T>& value, const Labels& labels = {}) {
  return value.has_value() ? std::optional(registry.AddGauge(name, help, labels)) : std::nullopt;
}

template <typename T>
void SetIfKnown(const std::optional<base::Gauge>& gauge, const std::optional<T>& value, double scale = 1) {
  if (gauge.has_value() && value.has_value()) gauge->Set(scale * static_cast<double>(*value));
}

constexpr double kHertzPerMegahertz = 1e6;

}  // namespace

GpuMetrics::GpuMetrics(MetricsRegistry& registry, const device::GpuStatus& status)
    : power_watts_(AddGaugeIfKnown(registry, "ridgeline_gpu_power_watts", "Power that the GPU draws.", status.power_watts)),
      power_limit_watts_(AddGaugeIfKnown(registry, "ridgeline_gpu_power_limit_watts",
                                         "Power at which the GPU's clocks are held down.", status.power_limit_watts)),
      temperature_celsius_(AddGaugeIfKnown(registry, "ridgeline_gpu_temperature_celsius", "Temperature of the GPU.",
                                           status.temperature_celsius)),
      sm_clock_hertz_(
          AddGaugeIfKnown(registry, "ridgeline_gpu_clock_hertz", "Clocks of the GPU.", status.sm_clock_mhz, {{"clock", "sm"}})),
      memory_clock_hertz_(AddGaugeIfKnown(registry, "ridgeline_gpu_clock_hertz", "Clocks of the GPU.", status.memory_clock_mhz,
                                          {{"clock", "memory"}})),
      corrected_ecc_errors_(AddGaugeIfKnown(registry, "ridgeline_gpu_ecc_errors",
                                            "Memory errors since the driver was loaded, by whether they could be corrected.",
                                            status.corrected_ecc_errors, {{"kind", "corrected"}})),
      uncorrected_ecc_errors_(AddGaugeIfKnown(registry, "ridgeline_gpu_ecc_errors",
                                              "Memory errors since the driver was loaded, by whether they could be corrected.",
                                              status.uncorrected_ecc_errors, {{"kind", "uncorrected"}})) {
  if (!status.throttle_reasons.has_value()) return;
  for (const char* reason : device::kThrottleReasons) {
    throttled_.emplace(reason, registry.AddGauge("ridgeline_gpu_throttled", "1 while this holds the GPU's clocks down.",
                                                 {{"reason", reason}}));
  }
}

void GpuMetrics::Update(const device::GpuStatus& status) const {
  SetIfKnown(power_watts_, status.power_watts);
  SetIfKnown(power_limit_watts_, status.power_limit_watts);
  SetIfKnown(temperature_celsius_, status.temperature_celsius);
  SetIfKnown(sm_clock_hertz_, status.sm_clock_mhz, kHertzPerMegahertz);
  SetIfKnown(memory_clock_hertz_, status.memory_clock_mhz, kHertzPerMegahertz);
  SetIfKnown(corrected_ecc_errors_, status.corrected_ecc_errors);
  SetIfKnown(uncorrected_ecc_errors_, status.uncorrected_ecc_errors);
  if (!status.throttle_reasons.has_value()) return;
  const std::vector<std::string>& reasons = *status.throttle_reasons;
  for (const auto& [reason, gauge] : throttled_) gauge.Set(std::count(reasons.begin(), reasons.end(), reason));
}

EngineMetrics::EngineMetrics(MetricsRegistry& registry, const device::Device& device, const Roofline& roofline)
    : attend_kernels_{AddKernel(registry, device.info().name, kAttend, Name(Algorithm::kStandard)),
                      AddKernel(registry, device.info().name, kAttend, Name(Algorithm::kFlash))},
      attend_outcomes_(AddOutcomes(registry, kAttend)),
      append_outcomes_(AddOutcomes(registry, kAppend)),
      fuse_outcomes_(AddOutcomes(registry, kFuse)),
      measured_points_(registry.AddCounter(kPoints, kPointsHelp, {{"outcome", "measured"}})),
      skipped_points_(registry.AddCounter(kPoints, kPointsHelp, {{"outcome", "skipped"}})),
      scheduler_{.queue_wait_seconds = registry.AddHistogram(
                     "ridgeline_queue_wait_seconds", "From arrival until a lane took the request.", base::LatencyBuckets()),
                 .batch_requests = registry.AddHistogram("ridgeline_batch_requests", "Requests that left in one launch.",
                                                         {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024})},
      lanes_busy_(registry.AddGauge("ridgeline_lanes_busy", "Lanes that run a launch.")),
      queue_requests_(registry.AddGauge("ridgeline_queue_requests", "Requests that wait for a lane.")),
      admitted_bytes_(
          registry.AddGauge("ridgeline_queue_bytes", "Device memory that admitted requests, waiting and running, may need.")),
      allocated_bytes_(registry.AddGauge("ridgeline_allocator_allocated_bytes", "Device memory in live allocations.")),
      reserved_bytes_(registry.AddGauge("ridgeline_allocator_reserved_bytes", "Device memory taken from the system.")),
      peak_allocated_bytes_(registry.AddGauge("ridgeline_allocator_peak_allocated_bytes",
                                              "Most device memory in live allocations since start or reset.")),
      peak_reserved_bytes_(registry.AddGauge("ridgeline_allocator_peak_reserved_bytes",
                                             "Most device memory taken from the system since start or reset.")),
      limit_bytes_(registry.AddGauge("ridgeline_allocator_limit_bytes", "Hard limit on reserved device memory.")),
      retries_{.counter = registry.AddCounter("ridgeline_allocator_retries_total",
                                              "Allocations that succeeded only after cached memory was given back.")},
      out_of_memory_{
          .counter = registry.AddCounter("ridgeline_allocator_out_of_memory_total", "Allocations refused for want of memory.")},
      kv_caches_(registry.AddGauge("ridgeline_kv_caches", "KV caches.")),
      kv_sequences_(registry.AddGauge("ridgeline_kv_sequences", "Sequences in all KV caches.")),
      kv_pages_used_(registry.AddGauge("ridgeline_kv_pages", kPagesHelp, {{"state", "used"}})),
      kv_pages_free_(registry.AddGauge("ridgeline_kv_pages", kPagesHelp, {{"state", "free"}})),
      kv_bytes_(registry.AddGauge("ridgeline_kv_bytes", "Device memory of all KV caches.")),
      kv_expired_caches_{.counter = registry.AddCounter("ridgeline_kv_expired_caches_total",
                                                        "KV caches that went because their lease had run out.")},
      kv_evicted_sequences_{
          .counter = registry.AddCounter("ridgeline_kv_evicted_sequences_total", "Sequences that lost their pages to others.")},
      kv_copied_pages_{.counter = registry.AddCounter("ridgeline_kv_copied_pages_total",
                                                      "Pages copied because they were shared when one was written.")} {
  for (int op = 0; op < kernels::fused::kNumOps; ++op) {
    for (const Mode mode : {Mode::kFused, Mode::kUnfused}) {
      fuse_kernels_[op].push_back(AddKernel(registry, device.info().name, Name(static_cast<Op>(op)), Name(mode)));
    }
  }
  ExportBuildInfo(registry, device.info());
  ExportRoofline(registry, roofline);
  registry.AddGauge("ridgeline_lanes", "Requests that can run at the same time.").Set(device.num_lanes());
  if (device.pinned_memory_stats().has_value()) {
    pinned_memory_ = {
        .allocated_bytes = registry.AddGauge("ridgeline_pinned_allocated_bytes", "Pinned host memory in live results."),
        .reserved_bytes = registry.AddGauge("ridgeline_pinned_reserved_bytes", "Pinned host memory taken from the system."),
        .limit_bytes = registry.AddGauge("ridgeline_pinned_limit_bytes", "Hard limit on reserved pinned host memory.")};
  }
  if (const auto status = device.gpu_status(); status.has_value()) gpu_.emplace(registry, *status);
}

EngineMetrics::Kernel EngineMetrics::AddKernel(MetricsRegistry& registry, const std::string& device, const char* operation,
                                               const char* algorithm) {
  const Labels labels = {{"operation", operation}, {"algorithm", algorithm}, {"device", device}};
  return {.seconds = registry.AddHistogram("ridgeline_kernel_seconds", "Time of the kernels of one request, by device events.",
                                           base::LatencyBuckets(), labels),
          .flops = registry.AddCounter("ridgeline_flops_total", "Floating-point operations, by formula.", labels),
          .bytes = registry.AddCounter("ridgeline_device_bytes_total",
                                       "Bytes that kernels must move through device memory, by formula.", labels)};
}

void EngineMetrics::Count(const std::vector<base::Counter>& outcomes, absl::StatusCode outcome) {
  std::size_t i = 0;
  while (i + 1 < kOutcomes.size() && kOutcomes[i].code != outcome) ++i;
  outcomes[i].Increment();
}

void EngineMetrics::CountAttendKernel(Algorithm algorithm, absl::Duration kernel_time, std::int64_t flops,
                                      std::int64_t bytes) const {
  attend_kernels_[static_cast<std::size_t>(algorithm)].Count(kernel_time, flops, bytes);
}

void EngineMetrics::CountFuseKernel(Op op, Mode mode, absl::Duration kernel_time, std::int64_t flops,
                                    std::int64_t bytes) const {
  fuse_kernels_[static_cast<std::size_t>(op)][static_cast<std::size_t>(mode)].Count(kernel_time, flops, bytes);
}

void EngineMetrics::Kernel::Count(absl::Duration kernel_time, std::int64_t num_flops, std::int64_t num_bytes) const {
  seconds.Observe(absl::ToDoubleSeconds(kernel_time));
  flops.Increment(static_cast<double>(num_flops));
  bytes.Increment(static_cast<double>(num_bytes));
}

void EngineMetrics::MirroredCounter::Follow(std::int64_t total) {
  counter.Increment(static_cast<double>(total - counted));
  counted = total;
}

void EngineMetrics::UpdateOnScrape(const Load& load, const kv_cache::KvCacheStatistics& kv_caches,
                                   const device::Device& device) {
  const device::MemoryStats memory = device.memory_stats();
  lanes_busy_.Set(load.busy_lanes);
  queue_requests_.Set(load.queued_requests);
  admitted_bytes_.Set(static_cast<double>(load.admitted_bytes));
  allocated_bytes_.Set(static_cast<double>(memory.allocated_bytes));
  reserved_bytes_.Set(static_cast<double>(memory.reserved_bytes));
  peak_allocated_bytes_.Set(static_cast<double>(memory.peak_allocated_bytes));
  peak_reserved_bytes_.Set(static_cast<double>(memory.peak_reserved_bytes));
  limit_bytes_.Set(static_cast<double>(memory.limit_bytes));
  retries_.Follow(memory.retries);
  out_of_memory_.Follow(memory.out_of_memory_count);
  kv_caches_.Set(static_cast<double>(kv_caches.caches));
  kv_sequences_.Set(static_cast<double>(kv_caches.sequences));
  kv_pages_used_.Set(static_cast<double>(kv_caches.used_pages));
  kv_pages_free_.Set(static_cast<double>(kv_caches.free_pages));
  kv_bytes_.Set(static_cast<double>(kv_caches.arena_bytes));
  kv_expired_caches_.Follow(kv_caches.expired_caches);
  kv_evicted_sequences_.Follow(kv_caches.evicted_sequences);
  kv_copied_pages_.Follow(kv_caches.copied_pages);
  if (pinned_memory_.has_value()) {
    const device::MemoryStats pinned = device.pinned_memory_stats().value_or(device::MemoryStats());
    pinned_memory_->allocated_bytes.Set(static_cast<double>(pinned.allocated_bytes));
    pinned_memory_->reserved_bytes.Set(static_cast<double>(pinned.reserved_bytes));
    pinned_memory_->limit_bytes.Set(static_cast<double>(pinned.limit_bytes));
  }
  if (gpu_.has_value()) gpu_->Update(device.gpu_status().value_or(device::GpuStatus()));
}

}  // namespace ridgeline::engine
