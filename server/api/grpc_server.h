// The gRPC port: services, health, reflection, limits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/api/connection_limits.h"
#include "server/api/server_credentials.h"
#include "server/base/metrics.h"
#include "server/engine/engine.h"

namespace ridgeline::api {

struct GrpcServerOptions {
  std::vector<std::string> addresses;  // host:port or unix:/path; port 0 picks a free one
  ConnectionLimits limits;
  bool channelz = false;
  std::string device_selection_reason;
  TlsFiles tls;             // of all addresses but unix sockets
  std::string instance_id;  // made at this start of the daemon: what clients know it by
};

class GrpcServer {
 public:
  virtual ~GrpcServer() = default;

  // The addresses that it listens on, ports resolved.
  virtual const std::vector<std::string>& addresses() const = 0;

  // What grpc.health.v1 answers, overall and for each service.
  virtual void SetServing(bool serving) = 0;

  // Takes no new connections and waits until calls have ended; those still open after `timeout` are cancelled.
  virtual void Shutdown(absl::Duration timeout) = 0;
};

// Serves from its return on; not yet SERVING. `engine` and `registry` outlive it. Errors: INVALID_ARGUMENT or UNAVAILABLE
// naming the address that cannot be listened on.
absl::StatusOr<std::unique_ptr<GrpcServer>> StartGrpcServer(const GrpcServerOptions& options, engine::Engine& engine,
                                                            base::MetricsRegistry& registry);

}  // namespace ridgeline::api
