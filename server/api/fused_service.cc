#include "server/api/fused_service.h"

#include "absl/status/statusor.h"
#include "grpcpp/support/server_callback.h"
#include "ridgeline/v1/fused.grpc.pb.h"
#include "server/api/deferred_unary.h"
#include "server/api/fuse_converter.h"
#include "server/api/unary.h"
#include "server/engine/fused_ops.h"

namespace ridgeline::api {
namespace {

using RawService = v1::FusedService::WithRawCallbackMethod_Fuse<
    v1::FusedService::WithRawCallbackMethod_ListFusedOps<v1::FusedService::Service>>;

class FusedService : public RawService {
 public:
  FusedService(RpcContext& shared, engine::Engine& engine)
      : shared_(shared),
        engine_(engine),
        fuse_(shared.metrics(v1::FusedService::service_full_name(), "Fuse")),
        list_(shared.metrics(v1::FusedService::service_full_name(), "ListFusedOps")) {}

  grpc::ServerUnaryReactor* Fuse(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override {
    auto* reactor = new DeferredUnary<engine::FuseResult>(shared_, fuse_, *context, *response);
    reactor->Start(*request, &ParseFuseRequest, engine_, &engine::Engine::Fuse);
    return reactor;
  }

  grpc::ServerUnaryReactor* ListFusedOps(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override {
    const auto list = [](const v1::ListFusedOpsRequest&, const Rpc&) -> absl::StatusOr<v1::ListFusedOpsResponse> {
      v1::ListFusedOpsResponse ops;
      for (const engine::FusedOpDescription& op : engine::FusedOps()) *ops.add_ops() = ToMessage(op);
      return ops;
    };
    return AnswerNow<v1::ListFusedOpsRequest>(shared_, list_, context, request, response, list);
  }

 private:
  RpcContext& shared_;
  engine::Engine& engine_;
  MethodMetrics& fuse_;
  MethodMetrics& list_;
};

}  // namespace

std::unique_ptr<grpc::Service> CreateFusedService(RpcContext& shared, engine::Engine& engine) {
  return std::make_unique<FusedService>(shared, engine);
}

}  // namespace ridgeline::api
