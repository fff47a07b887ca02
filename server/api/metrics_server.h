// The metrics port: /metrics for Prometheus, /healthz and /readyz for probes that speak no gRPC.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/metrics.h"
#include "server/engine/engine.h"

namespace ridgeline::api {

class MetricsServer {
 public:
  virtual ~MetricsServer() = default;  // stops listening

  // host:port, the port resolved.
  virtual const std::string& address() const = 0;
};

// Serves until destroyed; `registry` and `engine` outlive it. `address` is host:port, port 0 picks a free one. /healthz: 200
// while engine.health() is ok, else 503 with the cause. /readyz: 200 while work is accepted, 503 while draining. Errors:
// UNAVAILABLE if the address cannot be listened on.
absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetricsServer(const std::string& address,
                                                                  const base::MetricsRegistry& registry,
                                                                  const engine::Engine& engine);

}  // namespace ridgeline::api
