// One CaptureTrace call.
//
//   recorder on ─► alarm after the duration ─► recorder off ─► StartWrite(piece) ─► OnWriteDone ─► ... ─► summary ─► Finish
//                    │ cancelled: recorder off ─► Finish
#pragma once

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/api/rpc.h"
#include "server/engine/engine.h"

namespace ridgeline::api {

using TraceReactorBase = grpc::ServerWriteReactor<grpc::ByteBuffer>;

// A reactor that starts capturing at once and deletes itself when the call is done.
TraceReactorBase* StartTraceStream(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context,
                                   grpc::ByteBuffer& request, engine::Engine& engine);

}  // namespace ridgeline::api
