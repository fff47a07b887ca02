// ridgeline.v1.KvCacheService on the engine and its store of caches. All methods take raw bytes: tensors are not copied, and
// bytes that are no message get an error that says so.
#pragma once

#include <memory>

#include "grpcpp/impl/service_type.h"
#include "server/api/rpc.h"
#include "server/engine/engine.h"

namespace ridgeline::api {

// Both arguments outlive the service.
std::unique_ptr<grpc::Service> CreateKvCacheService(RpcContext& shared, engine::Engine& engine);

}  // namespace ridgeline::api
