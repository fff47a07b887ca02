#include "server/api/attention_service.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/server_callback.h"
#include "ridgeline/v1/attention.grpc.pb.h"
#include "server/api/attend_converter.h"
#include "server/api/attend_stream.h"
#include "server/api/byte_buffer.h"

namespace ridgeline::api {
namespace {

using RawService = v1::AttentionService::WithRawCallbackMethod_Attend<
    v1::AttentionService::WithRawCallbackMethod_AttendStream<v1::AttentionService::Service>>;

// One Attend call. The engine answers exactly once and Finish follows at once, so the reactor outlives the engine's callback;
// gRPC delivers OnCancel only after the handler has returned, when call_ is set, and OnDone after that.
class AttendReactor : public grpc::ServerUnaryReactor {
 public:
  AttendReactor(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context, grpc::ByteBuffer& response)
      : rpc_(shared, metrics, context), response_(response) {}

  void Start(grpc::ByteBuffer& wire_request, engine::Engine& engine) {
    WireView wire = TakeView(wire_request);
    absl::StatusOr<engine::AttendRequest> request = ParseAttendRequest(wire.slices, std::move(wire.owner));
    if (!request.ok()) {
      Finish(rpc_.Close(request.status()));
      return;
    }
    call_ = engine.Attend(*std::move(request), rpc_.call_context(),
                          [this](const absl::StatusOr<engine::AttendResult>& result) { Answer(result); });
  }

  void OnCancel() override {
    if (call_ != nullptr) call_->Cancel();
  }

  void OnDone() override { delete this; }

 private:
  void Answer(const absl::StatusOr<engine::AttendResult>& result) {
    if (result.ok()) response_ = Serialize(*result);
    Finish(rpc_.Close(result.status()));
  }

  Rpc rpc_;
  grpc::ByteBuffer& response_;
  std::shared_ptr<engine::Call> call_;
};

class AttentionService : public RawService {
 public:
  AttentionService(RpcContext& shared, engine::Engine& engine)
      : shared_(shared),
        engine_(engine),
        attend_metrics_(shared.metrics(v1::AttentionService::service_full_name(), "Attend")),
        stream_metrics_(shared.metrics(v1::AttentionService::service_full_name(), "AttendStream")) {}

  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    auto* reactor = new AttendReactor(shared_, attend_metrics_, *context, *response);
    // gRPC made the buffer, not const, for this call, and keeps it until the call is done.
    reactor->Start(const_cast<grpc::ByteBuffer&>(*request), engine_);
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
