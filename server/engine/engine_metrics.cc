#include "server/engine/engine_metrics.h"

#include <cstddef>
#include <string>

#include "kernels/common/data_type.h"
#include "server/base/version.h"

namespace ridgeline::engine {
namespace {

using base::Labels;
using base::MetricsRegistry;
using kernels::attention::Algorithm;

struct Outcome {
  absl::StatusCode code;
  const char* label;
};

// The last stands for every code that is not listed.
constexpr std::array<Outcome, 8> kOutcomes = {{{absl::StatusCode::kOk, "ok"},
                                               {absl::StatusCode::kInvalidArgument, "invalid_argument"},
                                               {absl::StatusCode::kUnimplemented, "unimplemented"},
                                               {absl::StatusCode::kResourceExhausted, "resource_exhausted"},
                                               {absl::StatusCode::kUnavailable, "unavailable"},
                                               {absl::StatusCode::kDeadlineExceeded, "deadline_exceeded"},
                                               {absl::StatusCode::kCancelled, "cancelled"},
                                               {absl::StatusCode::kInternal, "internal"}}};

constexpr char kOperation[] = "attend";

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

std::vector<base::Counter> AddOutcomes(MetricsRegistry& registry) {
  std::vector<base::Counter> counters;
  for (const Outcome& outcome : kOutcomes) {
    counters.push_back(registry.AddCounter("ridgeline_requests_total", "Requests answered by the engine, by status code.",
                                           {{"operation", kOperation}, {"outcome", outcome.label}}));
  }
  return counters;
}

}  // namespace

EngineMetrics::EngineMetrics(MetricsRegistry& registry, const device::Device& device, const Roofline& roofline)
    : attend_kernels_{AddKernel(registry, device.info().name, Algorithm::kStandard),
                      AddKernel(registry, device.info().name, Algorithm::kFlash)},
      attend_outcomes_(AddOutcomes(registry)),
      queue_wait_seconds_(registry.AddHistogram("ridgeline_queue_wait_seconds", "From arrival until a lane took the request.",
                                                base::LatencyBuckets())),
      lanes_busy_(registry.AddGauge("ridgeline_lanes_busy", "Lanes that run a request.")),
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
      out_of_memory_{.counter = registry.AddCounter("ridgeline_allocator_out_of_memory_total",
                                                    "Allocations refused for want of memory.")} {
  ExportBuildInfo(registry, device.info());
  ExportRoofline(registry, roofline);
  registry.AddGauge("ridgeline_lanes", "Requests that can run at the same time.").Set(device.num_lanes());
}

EngineMetrics::Kernel EngineMetrics::AddKernel(MetricsRegistry& registry, const std::string& device, Algorithm algorithm) {
  const Labels labels = {{"operation", kOperation}, {"algorithm", Name(algorithm)}, {"device", device}};
  return {.seconds = registry.AddHistogram("ridgeline_kernel_seconds", "Time of the kernels of one request, by device events.",
                                           base::LatencyBuckets(), labels),
          .flops = registry.AddCounter("ridgeline_flops_total", "Floating-point operations, by formula.", labels),
          .bytes = registry.AddCounter("ridgeline_device_bytes_total",
                                       "Bytes that kernels must move through device memory, by formula.", labels)};
}

void EngineMetrics::CountAttend(absl::StatusCode outcome) const {
  std::size_t i = 0;
  while (i + 1 < kOutcomes.size() && kOutcomes[i].code != outcome) ++i;
  attend_outcomes_[i].Increment();
}

void EngineMetrics::CountAttendKernel(Algorithm algorithm, absl::Duration kernel_time, std::int64_t flops,
                                      std::int64_t bytes) const {
  const Kernel& kernel = attend_kernels_[static_cast<std::size_t>(algorithm)];
  kernel.seconds.Observe(absl::ToDoubleSeconds(kernel_time));
  kernel.flops.Increment(static_cast<double>(flops));
  kernel.bytes.Increment(static_cast<double>(bytes));
}

void EngineMetrics::MirroredCounter::Follow(std::int64_t total) {
  counter.Increment(static_cast<double>(total - counted));
  counted = total;
}

void EngineMetrics::UpdateOnScrape(const Load& load, const device::MemoryStats& memory) {
  lanes_busy_.Set(load.running_requests);
  queue_requests_.Set(load.queued_requests);
  admitted_bytes_.Set(static_cast<double>(load.admitted_bytes));
  allocated_bytes_.Set(static_cast<double>(memory.allocated_bytes));
  reserved_bytes_.Set(static_cast<double>(memory.reserved_bytes));
  peak_allocated_bytes_.Set(static_cast<double>(memory.peak_allocated_bytes));
  peak_reserved_bytes_.Set(static_cast<double>(memory.peak_reserved_bytes));
  limit_bytes_.Set(static_cast<double>(memory.limit_bytes));
  retries_.Follow(memory.retries);
  out_of_memory_.Follow(memory.out_of_memory_count);
}

}  // namespace ridgeline::engine
