// What the scheduler tells Prometheus.
#pragma once

#include "server/base/metrics.h"

namespace ridgeline::engine {

struct SchedulerMetrics {
  base::Histogram queue_wait_seconds;  // of each request
  base::Histogram batch_requests;      // of each launch
};

}  // namespace ridgeline::engine
