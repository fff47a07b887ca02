// What the measuring instrument tells Prometheus: how fast the device was, run after run.
#pragma once

#include <map>
#include <string>

#include "server/base/metrics.h"
#include "server/device/device.h"
#include "server/engine/benchmark/benchmark.h"

namespace ridgeline::engine {

// The gauges keep the best point of the last run that was done with the default axes: runs that anybody chose otherwise don't
// compare. One run at a time.
class BenchmarkMetrics {
 public:
  BenchmarkMetrics(base::MetricsRegistry& registry, const device::DeviceInfo& device);

  // The best of a run so far.
  struct Run {
    std::string benchmark;
    bool is_default = true;  // its axes
    double bytes_per_second = 0;
    double flops_per_second = 0;
    double roof_fraction = 0;
  };

  void Note(const benchmark::Event& event, Run& run);

 private:
  struct Best {
    base::OptionalGauge bytes_per_second;
    base::OptionalGauge flops_per_second;
    base::OptionalGauge roof_fraction;
    base::OptionalGauge end_time_seconds;
  };

  base::Counter measured_points_;
  base::Counter skipped_points_;
  std::map<std::string, Best> best_;  // by benchmark; of those that the device has
};

}  // namespace ridgeline::engine
