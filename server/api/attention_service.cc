#include "server/api/attention_service.h"

#include "grpcpp/support/server_callback.h"
#include "ridgeline/v1/attention.grpc.pb.h"
#include "server/api/attend_converter.h"
#include "server/api/attend_stream.h"
#include "server/api/deferred_unary.h"

namespace ridgeline::api {
namespace {

using RawService = v1::AttentionService::WithRawCallbackMethod_Attend<
    v1::AttentionService::WithRawCallbackMethod_AttendStream<v1::AttentionService::Service>>;

class AttentionService : public RawService {
 public:
  AttentionService(RpcContext& shared, engine::Engine& engine)
      : shared_(shared),
        engine_(engine),
        attend_metrics_(shared.metrics(v1::AttentionService::service_full_name(), "Attend")),
        stream_metrics_(shared.metrics(v1::AttentionService::service_full_name(), "AttendStream")) {}

  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    auto* reactor = new DeferredUnary<engine::AttendResult>(shared_, attend_metrics_, *context, *response);
    reactor->Start(*request, &ParseAttendRequest, engine_, &engine::Engine::Attend);
    return reactor;
  }

  AttendStreamBase* AttendStream(grpc::CallbackServerContext* context) override {
    return StartAttendStream(shared_, stream_metrics_, *context, engine_);
  }

 private:
  RpcContext& shared_;
  engine::Engine& engine_;
  MethodMetrics& attend_metrics_;
  MethodMetrics& stream_metrics_;
};

}  // namespace

std::unique_ptr<grpc::Service> CreateAttentionService(RpcContext& shared, engine::Engine& engine) {
  return std::make_unique<AttentionService>(shared, engine);
}

}  // namespace ridgeline::api
