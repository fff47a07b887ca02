// How busy the engine is.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace ridgeline::engine {

// Requests that were refused since the start, by the quota of their client's that they would have broken.
struct QuotaRefusals {
  std::int64_t requests = 0;
  std::int64_t bytes = 0;
};

struct Load {
  int queued_requests = 0;   // wait for a lane
  int running_requests = 0;  // on a lane; those that share a launch count one each
  int lanes = 0;
  int busy_lanes = 0;
  std::int64_t admitted_bytes = 0;
  absl::Duration silence;  // for which work has been pending and none has completed; zero while none is pending
  QuotaRefusals quota_refusals;
  bool draining = false;
};

}  // namespace ridgeline::engine
