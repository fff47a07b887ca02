// The state of a GPU, as its monitoring gives it.
#pragma once

#include <map>
#include <string>

#include "server/base/metrics.h"
#include "server/device/device.h"

namespace ridgeline::engine {

// Every series carries the label UUID, spelled as dcgm-exporter spells it, so that its series of the same GPU join. A reading
// that is missing has no series, also when it was there before. One scrape at a time.
class GpuMetrics {
 public:
  GpuMetrics(base::MetricsRegistry& registry, const std::string& uuid);

  void Update(const device::GpuStatus& status);

 private:
  base::OptionalGauge power_watts_;
  base::OptionalGauge power_limit_watts_;
  base::OptionalGauge temperature_celsius_;
  base::OptionalGauge sm_clock_hertz_;
  base::OptionalGauge memory_clock_hertz_;
  base::OptionalGauge utilization_;
  base::OptionalGauge corrected_ecc_errors_;
  base::OptionalGauge uncorrected_ecc_errors_;
  base::OptionalGauge xid_errors_;
  base::OptionalGauge last_xid_;
  std::map<std::string, base::OptionalGauge> throttled_;  // by reason
};

}  // namespace ridgeline::engine
