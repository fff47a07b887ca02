// ridgeline.v1.FusedService on the engine. Requests and answers are raw byte buffers: see byte_buffer.h and wire_reader.h.
#pragma once

#include <memory>

#include "grpcpp/impl/service_type.h"
#include "server/api/rpc.h"
#include "server/engine/engine.h"

namespace ridgeline::api {

// Both arguments outlive the service.
std::unique_ptr<grpc::Service> CreateFusedService(RpcContext& shared, engine::Engine& engine);

}  // namespace ridgeline::api
