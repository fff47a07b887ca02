#include "server/engine/gpu_metrics.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace ridgeline::engine {
namespace {

constexpr double kHertzPerMegahertz = 1e6;

template <typename T>
std::optional<double> Scaled(const std::optional<T>& value, double scale = 1) {
  return value.has_value() ? std::optional(scale * static_cast<double>(*value)) : std::nullopt;
}

// Adds gauges of one GPU.
class Adder {
 public:
  Adder(base::MetricsRegistry& registry, const std::string& uuid) : registry_(registry), uuid_(uuid) {}

  base::OptionalGauge operator()(const char* name, const char* help, base::Labels labels = {}) const {
    labels.emplace("UUID", uuid_);
    return registry_.AddOptionalGauge(name, help, labels);
  }
  base::OptionalGauge Clock(const char* clock) const {
    return (*this)("ridgeline_gpu_clock_hertz", "Clocks of the GPU.", {{"clock", clock}});
  }
  base::OptionalGauge EccErrors(const char* kind) const {
    return (*this)("ridgeline_gpu_ecc_errors", "Memory errors since the driver was loaded, by whether they could be corrected.",
                   {{"kind", kind}});
  }

 private:
  base::MetricsRegistry& registry_;
  const std::string& uuid_;
};

}  // namespace

GpuMetrics::GpuMetrics(base::MetricsRegistry& registry, const std::string& uuid)
    : power_watts_(Adder(registry, uuid)("ridgeline_gpu_power_watts", "Power that the GPU draws.")),
      power_limit_watts_(
          Adder(registry, uuid)("ridgeline_gpu_power_limit_watts", "Power at which the GPU's clocks are held down.")),
      temperature_celsius_(Adder(registry, uuid)("ridgeline_gpu_temperature_celsius", "Temperature of the GPU.")),
      sm_clock_hertz_(Adder(registry, uuid).Clock("sm")),
      memory_clock_hertz_(Adder(registry, uuid).Clock("memory")),
      utilization_(Adder(registry, uuid)("ridgeline_gpu_utilization_ratio",
                                         "Share of the driver's last sample during which any kernel ran, of any process.")),
      corrected_ecc_errors_(Adder(registry, uuid).EccErrors("corrected")),
      uncorrected_ecc_errors_(Adder(registry, uuid).EccErrors("uncorrected")),
      xid_errors_(
          Adder(registry, uuid)("ridgeline_gpu_xid_errors", "Xid errors that the driver reported since this daemon started.")),
      last_xid_(
          Adder(registry, uuid)("ridgeline_gpu_last_xid", "The last Xid that the driver reported since this daemon started.")) {
  for (const char* reason : device::kThrottleReasons) {
    throttled_.emplace(reason, Adder(registry, uuid)("ridgeline_gpu_throttled", "1 while this holds the GPU's clocks down.",
                                                     {{"reason", reason}}));
  }
}

void GpuMetrics::Update(const device::GpuStatus& status) {
  power_watts_.Set(status.power_watts);
  power_limit_watts_.Set(status.power_limit_watts);
  temperature_celsius_.Set(Scaled(status.temperature_celsius));
  sm_clock_hertz_.Set(Scaled(status.sm_clock_mhz, kHertzPerMegahertz));
  memory_clock_hertz_.Set(Scaled(status.memory_clock_mhz, kHertzPerMegahertz));
  utilization_.Set(status.utilization);
  corrected_ecc_errors_.Set(Scaled(status.corrected_ecc_errors));
  uncorrected_ecc_errors_.Set(Scaled(status.uncorrected_ecc_errors));
  xid_errors_.Set(Scaled(status.xid_errors));
  last_xid_.Set(Scaled(status.last_xid));
  for (auto& [reason, gauge] : throttled_) {
    if (status.throttle_reasons.has_value()) {
      gauge.Set(static_cast<double>(std::count(status.throttle_reasons->begin(), status.throttle_reasons->end(), reason)));
    } else {
      gauge.Set(std::nullopt);
    }
  }
}

}  // namespace ridgeline::engine
