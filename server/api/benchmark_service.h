// ridgeline.v1.BenchmarkService on the engine.
#pragma once

#include <memory>

#include "grpcpp/impl/service_type.h"
#include "server/api/rpc.h"
#include "server/engine/engine.h"

namespace ridgeline::api {

// Both arguments outlive the service.
std::unique_ptr<grpc::Service> CreateBenchmarkService(RpcContext& shared, engine::Engine& engine);

}  // namespace ridgeline::api
