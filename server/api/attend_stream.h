// One AttendStream call: requests come in, answers leave in the same order.
//
//   OnReadDone ─► parse ─► engine ─► slot done ─► front of the line? ─► StartWrite ─► OnWriteDone ─► next
//        ▲                                                                                │
//        └────────────── reads again only while fewer than kMaxInFlight are under way ◄───┘
//
// The bound is the backpressure: of a client that doesn't read, nothing more is read.
#pragma once

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/api/rpc.h"
#include "server/engine/engine.h"

namespace ridgeline::api {

using AttendStreamBase = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// A reactor that starts reading at once and deletes itself when the call is done.
AttendStreamBase* StartAttendStream(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context,
                                    engine::Engine& engine);

}  // namespace ridgeline::api
