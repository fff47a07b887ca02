#include "server/engine/benchmark_metrics.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/engine/benchmark/table.h"

namespace ridgeline::engine {
namespace {

constexpr char kPoints[] = "ridgeline_benchmark_points_total";
constexpr char kPointsHelp[] = "Points of benchmarks, by outcome: measured, or skipped with a reason.";

std::optional<double> IfAny(double value) { return value > 0 ? std::optional(value) : std::nullopt; }

}  // namespace

BenchmarkMetrics::BenchmarkMetrics(base::MetricsRegistry& registry, const device::DeviceInfo& device)
    : measured_points_(registry.AddCounter(kPoints, kPointsHelp, {{"outcome", "measured"}})),
      skipped_points_(registry.AddCounter(kPoints, kPointsHelp, {{"outcome", "skipped"}})) {
  for (const benchmark::Benchmark& benchmark : benchmark::Benchmarks(device.type)) {
    if (!benchmark::Describe(benchmark, device).unsupported_reason.empty()) continue;
    const base::Labels labels = {{"benchmark", benchmark.name}};
    best_.emplace(
        benchmark.name,
        Best{.bytes_per_second = registry.AddOptionalGauge(
                 "ridgeline_benchmark_bytes_per_second",
                 "Highest bandwidth of a point in the benchmark's last run with default axes.", labels),
             .flops_per_second =
                 registry.AddOptionalGauge("ridgeline_benchmark_flops_per_second",
                                           "Highest rate of a point in the benchmark's last run with default axes.", labels),
             .roof_fraction = registry.AddOptionalGauge(
                 "ridgeline_benchmark_roof_fraction",
                 "Highest share of the roof of a point in the benchmark's last run with default axes.", labels),
             .end_time_seconds = registry.AddOptionalGauge("ridgeline_benchmark_end_time_seconds",
                                                           "When the benchmark's last run with default axes ended.", labels)});
  }
}

void BenchmarkMetrics::Note(const benchmark::Event& event, Run& run) {
  if (const auto* const point = std::get_if<benchmark::Point>(&event)) {
    const bool is_measured = point->skipped_reason.empty();
    (is_measured ? measured_points_ : skipped_points_).Increment();
    if (!is_measured || point->throttled) return;
    run.bytes_per_second = std::max(run.bytes_per_second, point->report.bytes_per_second);
    run.flops_per_second = std::max(run.flops_per_second, point->report.flops_per_second);
    run.roof_fraction = std::max(run.roof_fraction, point->report.roof_fraction);
  } else if (std::holds_alternative<benchmark::Summary>(event) && run.is_default) {
    const auto best = best_.find(run.benchmark);
    if (best == best_.end()) return;
    best->second.bytes_per_second.Set(IfAny(run.bytes_per_second));
    best->second.flops_per_second.Set(IfAny(run.flops_per_second));
    best->second.roof_fraction.Set(IfAny(run.roof_fraction));
    best->second.end_time_seconds.Set(absl::ToDoubleSeconds(base::SystemTime() - absl::UnixEpoch()));
  }
}

}  // namespace ridgeline::engine
