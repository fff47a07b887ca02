#include "server/api/sequence_export.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ridgeline/v1/kv_cache.pb.h"
#include "server/api/byte_buffer.h"
#include "server/api/pending_call.h"
#include "server/api/sequence_format.h"
#include "server/base/status_macros.h"

namespace ridgeline::api {
namespace {

// Either a write or a chunk is under way until Finish, so its reactions never overlap, but for OnCancel.
class ExportReactor : public ExportReactorBase {
 public:
  ExportReactor(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context)
      : rpc_(shared, metrics, context) {}

  // Engine callbacks hold the reactor too: the reader is let go of when none is under way.
  void Start(std::shared_ptr<ExportReactor> self, grpc::ByteBuffer& request, engine::Engine& engine) {
    self_ = std::move(self);
    if (absl::Status status = OpenReader(request, engine); !status.ok()) {
      FinishWith(status);
      return;
    }
    Write(Serialize(ToMessage(reader_->header())));
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      FinishWith(absl::CancelledError("the client stopped reading"));
    } else if (is_trailer_written_) {
      FinishWith(absl::OkStatus());
    } else {
      ReadNext();
    }
  }

  void OnCancel() override { pending_.Cancel(); }

  void OnDone() override { self_.reset(); }

 private:
  absl::Status OpenReader(grpc::ByteBuffer& wire_request, engine::Engine& engine) {
    v1::ExportSequenceRequest request;
    RIDGELINE_RETURN_IF_ERROR(Parse(wire_request, request));
    RIDGELINE_ASSIGN_OR_RETURN(reader_, engine.ExportSequence(rpc_.caller(), request.name()));
    summary_.emplace(reader_->header());
    return absl::OkStatus();
  }

  void ReadNext() {
    pending_.Start([this] {
      return reader_->Next(rpc_.call_context(), [self = self_](absl::StatusOr<std::optional<engine::OutgoingChunk>> chunk) {
        self->pending_.Answered();
        self->WriteNext(std::move(chunk));
      });
    });
  }

  void WriteNext(absl::StatusOr<std::optional<engine::OutgoingChunk>> chunk) {
    if (!chunk.ok()) {
      FinishWith(chunk.status());
    } else if (chunk->has_value()) {
      Write(Serialize(ToMessage(**chunk, *summary_), **chunk));
    } else {
      is_trailer_written_ = true;
      v1::SequencePart part;
      *part.mutable_trailer() = summary_->trailer();
      Write(Serialize(part));
    }
  }

  // When the client hears of it, the snapshot has let go of its pages.
  void FinishWith(const absl::Status& status) {
    reader_.reset();
    Finish(rpc_.Close(status));
  }

  void Write(grpc::ByteBuffer message) {
    message_ = std::move(message);
    StartWrite(&message_);
  }

  Rpc rpc_;
  PendingCall pending_;
  std::shared_ptr<ExportReactor> self_;
  std::unique_ptr<engine::SequenceReader> reader_;
  std::optional<SequenceSummary> summary_;  // set with reader_
  grpc::ByteBuffer message_;                // of the write under way
  bool is_trailer_written_ = false;
};

}  // namespace

ExportReactorBase* StartSequenceExport(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context,
                                       grpc::ByteBuffer& request, engine::Engine& engine) {
  auto reactor = std::make_shared<ExportReactor>(shared, metrics, context);
  reactor->Start(reactor, request, engine);
  return reactor.get();
}

}  // namespace ridgeline::api
