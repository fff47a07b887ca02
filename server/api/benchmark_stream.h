// One Benchmark call.
//
//   engine: Progress, Point, ..., Summary ─► outbox ─► StartWrite ─► OnWriteDone ─► ... ─► Finish
//
// The benchmark does not wait for a slow reader: what it tells is kept, a progress that nobody has seen yet gives way to the
// next one, and points are at most benchmark::kMaxPoints.
#pragma once

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/api/rpc.h"
#include "server/engine/engine.h"

namespace ridgeline::api {

using BenchmarkReactorBase = grpc::ServerWriteReactor<grpc::ByteBuffer>;

// A reactor that starts the benchmark at once and deletes itself when the call is done.
BenchmarkReactorBase* StartBenchmarkStream(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context,
                                           grpc::ByteBuffer& request, engine::Engine& engine);

}  // namespace ridgeline::api
