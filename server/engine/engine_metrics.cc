#include "server/engine/engine_metrics.h"

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "kernels/common/data_type.h"
#include "kernels/fused/op_info.h"
#include "server/base/clock.h"
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

base::Counter AddQuotaRefusals(MetricsRegistry& registry, const char* quota) {
  return registry.AddCounter("ridgeline_quota_refusals_total",
                             "Requests refused because their client had its share of the queue, by quota.", {{"quota", quota}});
}

}  // namespace

EngineMetrics::EngineMetrics(MetricsRegistry& registry, const device::Device& device, const Roofline& roofline)
    : attend_kernels_{AddKernel(registry, device.info().name, kAttend, Name(Algorithm::kStandard)),
                      AddKernel(registry, device.info().name, kAttend, Name(Algorithm::kFlash))},
      attend_outcomes_(AddOutcomes(registry, kAttend)),
      append_outcomes_(AddOutcomes(registry, kAppend)),
      fuse_outcomes_(AddOutcomes(registry, kFuse)),
      scheduler_{.queue_wait_seconds = registry.AddHistogram(
                     "ridgeline_queue_wait_seconds", "From arrival until a lane took the request.", base::LatencyBuckets()),
                 .batch_requests = registry.AddHistogram("ridgeline_batch_requests", "Requests that left in one launch.",
                                                         {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}),
                 .lane_busy_seconds = registry.AddCounter(
                     "ridgeline_lane_busy_seconds_total",
                     "Time that launches had lanes, summed over lanes; its rate is the mean number of busy lanes.")},
      lanes_busy_(registry.AddGauge("ridgeline_lanes_busy", "Lanes that run a launch.")),
      queue_requests_(registry.AddGauge("ridgeline_queue_requests", "Requests that wait for a lane.")),
      admitted_bytes_(
          registry.AddGauge("ridgeline_queue_bytes", "Device memory that admitted requests, waiting and running, may need.")),
      running_requests_(
          registry.AddGauge("ridgeline_running_requests", "Requests on lanes; those that share a launch count one each.")),
      silence_seconds_(
          registry.AddGauge("ridgeline_silence_seconds",
                            "For how long work has been pending without any of it being completed; 0 while none is pending.")),
      requests_quota_refusals_{.counter = AddQuotaRefusals(registry, "requests")},
      bytes_quota_refusals_{.counter = AddQuotaRefusals(registry, "bytes")},
      healthy_(registry.AddGauge("ridgeline_healthy", "1 while /healthz answers 200, else 0.")),
      draining_(registry.AddGauge("ridgeline_draining", "1 once no new work is accepted, else 0.")),
      memory_(registry, device),
      kv_caches_(AddKvCaches(registry)),
      benchmarks_(registry, device.info()) {
  for (int op = 0; op < kernels::fused::kNumOps; ++op) {
    for (const Mode mode : {Mode::kFused, Mode::kUnfused}) {
      fuse_kernels_[op].push_back(AddKernel(registry, device.info().name, Name(static_cast<Op>(op)), Name(mode)));
    }
  }
  ExportBuildInfo(registry, device.info());
  ExportRoofline(registry, roofline);
  registry.AddGauge("ridgeline_lanes", "Requests that can run at the same time.").Set(device.num_lanes());
  registry.AddGauge("ridgeline_start_time_seconds", "When this daemon started.")
      .Set(absl::ToDoubleSeconds(base::SystemTime() - absl::UnixEpoch()));
  if (const auto status = device.gpu_status(); status.has_value()) gpu_.emplace(registry, status->uuid);
}

EngineMetrics::Kernel EngineMetrics::AddKernel(MetricsRegistry& registry, const std::string& device, const char* operation,
                                               const char* algorithm) {
  const Labels labels = {{"operation", operation}, {"algorithm", algorithm}, {"device", device}};
  return {.seconds = registry.AddHistogram("ridgeline_kernel_seconds", "Time of the kernels of one launch, by device events.",
                                           base::LatencyBuckets(), labels),
          .roof_fraction = registry.AddHistogram("ridgeline_roof_fraction",
                                                 "Of each launch: its speed as a share of the measured roof at its intensity.",
                                                 base::FractionBuckets(), labels),
          .flops = registry.AddCounter("ridgeline_flops_total", "Floating-point operations, by formula.", labels),
          .bytes = registry.AddCounter("ridgeline_device_bytes_total",
                                       "Bytes that kernels must move through device memory, by formula.", labels)};
}

void EngineMetrics::Count(const std::vector<base::Counter>& outcomes, absl::StatusCode outcome) {
  std::size_t i = 0;
  while (i + 1 < kOutcomes.size() && kOutcomes[i].code != outcome) ++i;
  outcomes[i].Increment();
}

void EngineMetrics::CountAttendKernel(Algorithm algorithm, const ExecutionReport& report) const {
  attend_kernels_[static_cast<std::size_t>(algorithm)].Count(report);
}

void EngineMetrics::CountFuseKernel(Op op, Mode mode, const ExecutionReport& report) const {
  fuse_kernels_[static_cast<std::size_t>(op)][static_cast<std::size_t>(mode)].Count(report);
}

void EngineMetrics::Kernel::Count(const ExecutionReport& report) const {
  seconds.Observe(absl::ToDoubleSeconds(report.kernel_time));
  if (report.roof_fraction > 0) roof_fraction.Observe(report.roof_fraction);
  flops.Increment(static_cast<double>(report.flops));
  bytes.Increment(static_cast<double>(report.bytes));
}

EngineMetrics::KvCacheMetrics EngineMetrics::AddKvCaches(MetricsRegistry& registry) {
  return {.caches = registry.AddGauge("ridgeline_kv_caches", "KV caches."),
          .sequences = registry.AddGauge("ridgeline_kv_sequences", "Sequences in all KV caches."),
          .clients = registry.AddGauge("ridgeline_kv_clients", "Clients that hold a KV cache or a sequence."),
          .used_pages = registry.AddGauge("ridgeline_kv_pages", kPagesHelp, {{"state", "used"}}),
          .free_pages = registry.AddGauge("ridgeline_kv_pages", kPagesHelp, {{"state", "free"}}),
          .bytes = registry.AddGauge("ridgeline_kv_bytes", "Device memory of all KV caches."),
          .expired_caches = {.counter = registry.AddCounter("ridgeline_kv_expired_caches_total",
                                                            "KV caches that went because their lease had run out.")},
          .evicted_sequences = {.counter = registry.AddCounter("ridgeline_kv_evicted_sequences_total",
                                                               "Sequences that lost their pages to others.")},
          .copied_pages = {.counter = registry.AddCounter("ridgeline_kv_copied_pages_total",
                                                          "Pages copied because they were shared when one was written.")}};
}

void EngineMetrics::KvCacheMetrics::Update(const kv_cache::KvCacheStatistics& statistics) {
  caches.Set(static_cast<double>(statistics.caches));
  sequences.Set(static_cast<double>(statistics.sequences));
  clients.Set(static_cast<double>(statistics.clients));
  used_pages.Set(static_cast<double>(statistics.used_pages));
  free_pages.Set(static_cast<double>(statistics.free_pages));
  bytes.Set(static_cast<double>(statistics.arena_bytes));
  expired_caches.Follow(statistics.expired_caches);
  evicted_sequences.Follow(statistics.evicted_sequences);
  copied_pages.Follow(statistics.copied_pages);
}

void EngineMetrics::UpdateOnScrape(const Load& load, const absl::Status& health, const kv_cache::KvCacheStatistics& kv_caches,
                                   const device::Device& device) {
  lanes_busy_.Set(load.busy_lanes);
  queue_requests_.Set(load.queued_requests);
  admitted_bytes_.Set(static_cast<double>(load.admitted_bytes));
  running_requests_.Set(load.running_requests);
  silence_seconds_.Set(absl::ToDoubleSeconds(load.silence));
  requests_quota_refusals_.Follow(load.quota_refusals.requests);
  bytes_quota_refusals_.Follow(load.quota_refusals.bytes);
  healthy_.Set(health.ok() ? 1 : 0);
  draining_.Set(load.draining ? 1 : 0);
  memory_.Update(device);
  kv_caches_.Update(kv_caches);
  if (gpu_.has_value()) gpu_->Update(device.gpu_status().value_or(device::GpuStatus()));
}

}  // namespace ridgeline::engine
