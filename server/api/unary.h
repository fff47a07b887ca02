// Short calls that answer at once, on gRPC's own thread.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "server/api/rpc.h"

namespace ridgeline::api {

// Runs `handle`, which fills the response and returns an absl::Status, and finishes the call.
template <typename Handle>
grpc::ServerUnaryReactor* AnswerNow(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext* context,
                                    Handle&& handle) {
  Rpc rpc(shared, metrics, *context);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(rpc.Close(std::forward<Handle>(handle)()));
  return reactor;
}

}  // namespace ridgeline::api
