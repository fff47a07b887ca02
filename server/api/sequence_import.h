// One ImportSequence call.
//
//   OnReadDone(header) ─► engine.ImportSequence ─► OnReadDone(chunk) ─► checksum ─► writer.Append ─► ... ─► trailer ─► Commit
//
// The next message is read when the last is in the cache. A call that ends in any other way lets go of the writer, and nothing
// is left.
#pragma once

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/api/rpc.h"
#include "server/engine/engine.h"

namespace ridgeline::api {

using ImportReactorBase = grpc::ServerReadReactor<grpc::ByteBuffer>;

// A reactor that starts reading at once and deletes itself when the call is done.
ImportReactorBase* StartSequenceImport(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context,
                                       grpc::ByteBuffer& response, engine::Engine& engine);

}  // namespace ridgeline::api
