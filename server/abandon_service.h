// What the daemon does when its device is lost.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/api/grpc_server.h"
#include "server/engine/engine.h"

namespace ridgeline {

// Answers NOT_SERVING, waits until what is in flight has failed with the device's loss and the answers are on their way, and
// stops the gRPC server. Ends the process, with a failure, if that takes longer than `limit`: a lost device keeps no promises.
void AbandonService(const absl::Status& cause, absl::Duration limit, engine::Engine& engine, api::GrpcServer& grpc_server);

}  // namespace ridgeline
