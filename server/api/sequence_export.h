// One ExportSequence call.
//
//   StartWrite(header) ─► OnWriteDone ─► reader.Next ─► StartWrite(chunk) ─► OnWriteDone ─► ... ─► trailer ─► Finish
//
// The next chunk is made when the last has left for the client: a slow reader holds one chunk, not the sequence.
#pragma once

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/api/rpc.h"
#include "server/engine/engine.h"

namespace ridgeline::api {

using ExportReactorBase = grpc::ServerWriteReactor<grpc::ByteBuffer>;

// A reactor that starts writing at once and deletes itself when the call is done.
ExportReactorBase* StartSequenceExport(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context,
                                       grpc::ByteBuffer& request, engine::Engine& engine);

}  // namespace ridgeline::api
