// What the scheduler tells Prometheus.
#pragma once

#include "server/base/metrics.h"

namespace ridgeline::engine {

struct SchedulerMetrics {
  base::Histogram queue_wait_seconds;  // of each request
  base::Histogram batch_requests;      // of each launch
  base::Counter lane_busy_seconds;     // of all lanes together
};

}  // namespace ridgeline::engine
