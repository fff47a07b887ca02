// Short calls that answer at once, on gRPC's own thread.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/api/byte_buffer.h"
#include "server/api/rpc.h"
#include "server/base/status_macros.h"

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

// The same over raw bytes: `handle` makes an absl::StatusOr of the response from a Request and the call's Rpc.
template <typename Request, typename Handle>
grpc::ServerUnaryReactor* AnswerNow(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* wire_request, grpc::ByteBuffer* wire_response, Handle&& handle) {
  Rpc rpc(shared, metrics, *context);
  const auto answer = [&]() -> absl::Status {
    Request request;
    // gRPC made the buffer, not const, for this call.
    RIDGELINE_RETURN_IF_ERROR(Parse(const_cast<grpc::ByteBuffer&>(*wire_request), request));
    const auto response = std::forward<Handle>(handle)(request, rpc);
    if (response.ok()) *wire_response = Serialize(*response);
    return response.status();
  };
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(rpc.Close(answer()));
  return reactor;
}

}  // namespace ridgeline::api
