// Calls that the engine answers later, on a thread of its own or of the device's.
#pragma once

#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/api/byte_buffer.h"
#include "server/api/rpc.h"
#include "server/engine/engine.h"

namespace ridgeline::api {

// One call. The engine answers exactly once and Finish follows at once, so the reactor outlives the engine's callback; gRPC
// delivers OnCancel only after the handler has returned, when call_ is set, and OnDone after that. Deletes itself.
template <typename Result>
class DeferredUnary : public grpc::ServerUnaryReactor {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<Result>)>;

  DeferredUnary(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context, grpc::ByteBuffer& response)
      : rpc_(shared, metrics, context), response_(response) {}

  // `parse` turns the request's bytes, kept by an owner, into what the engine's `method` takes. gRPC made the buffer, not
  // const, for this call, and keeps it until the call is done.
  template <typename Request>
  void Start(const grpc::ByteBuffer& wire_request,
             absl::StatusOr<Request> (*parse)(absl::Span<const device::HostSlice>, std::shared_ptr<const void>),
             engine::Engine& engine,
             std::shared_ptr<engine::Call> (engine::Engine::*method)(Request, engine::CallContext, Done)) {
    WireView wire = TakeView(const_cast<grpc::ByteBuffer&>(wire_request));
    absl::StatusOr<Request> request = parse(wire.slices, std::move(wire.owner));
    if (!request.ok()) {
      this->Finish(rpc_.Close(request.status()));
      return;
    }
    call_ = (engine.*method)(*std::move(request), rpc_.call_context(),
                             [this](const absl::StatusOr<Result>& result) { Answer(result); });
  }

  void OnCancel() override {
    if (call_ != nullptr) call_->Cancel();
  }

  void OnDone() override { delete this; }

 private:
  void Answer(const absl::StatusOr<Result>& result) {
    if (result.ok()) response_ = Serialize(*result);
    this->Finish(rpc_.Close(result.status()));
  }

  Rpc rpc_;
  grpc::ByteBuffer& response_;
  std::shared_ptr<engine::Call> call_;
};

}  // namespace ridgeline::api
