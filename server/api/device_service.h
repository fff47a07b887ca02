// ridgeline.v1.DeviceService on the engine's device.
#pragma once

#include <memory>
#include <string>

#include "grpcpp/impl/service_type.h"
#include "server/api/rpc.h"
#include "server/engine/engine.h"

namespace ridgeline::api {

// `selection_reason`: why this device was chosen at start. `shared` and `engine` outlive the service.
std::unique_ptr<grpc::Service> CreateDeviceService(RpcContext& shared, engine::Engine& engine, std::string selection_reason);

}  // namespace ridgeline::api
