#include "server/api/sequence_import.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/api/byte_buffer.h"
#include "server/api/kv_cache_converter.h"
#include "server/api/pending_call.h"
#include "server/api/sequence_format.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::api {
namespace {

// Either a read or a chunk is under way until Finish, so its reactions never overlap, but for OnCancel.
class ImportReactor : public ImportReactorBase {
 public:
  ImportReactor(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context, grpc::ByteBuffer& response,
                engine::Engine& engine)
      : rpc_(shared, metrics, context), response_(response), engine_(engine) {}

  // Engine callbacks hold the reactor too: the writer is let go of when none is under way.
  void Start(std::shared_ptr<ImportReactor> self) {
    self_ = std::move(self);
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      FinishWith(
          base::WithReason(absl::InvalidArgumentError("the stream ended before the trailer"), base::kReasonTruncatedExport));
      return;
    }
    WireView wire = TakeView(request_);
    absl::StatusOr<ImportMessage> message = ParseImportSequenceRequest(wire.slices, std::move(wire.owner));
    if (!message.ok()) {
      FinishWith(message.status());
    } else if (std::holds_alternative<engine::SequenceHeader>(message->part)) {
      GoOn(Open(*std::move(message)));
    } else if (writer_ == nullptr) {
      FinishWith(base::InvalidField("part", "the first part must be a header"));
    } else if (auto* chunk = std::get_if<engine::IncomingChunk>(&message->part)) {
      Append(std::move(*chunk), message->chunk_crc32c);
    } else {
      FinishWith(Commit(std::get<v1::SequenceTrailer>(message->part)));
    }
  }

  void OnCancel() override { pending_.Cancel(); }

  void OnDone() override { self_.reset(); }

 private:
  absl::Status Open(ImportMessage message) {
    if (writer_ != nullptr)
      return base::InvalidField("part.header", "a second header; after the first come chunks and a trailer");
    auto& header = std::get<engine::SequenceHeader>(message.part);
    SequenceSummary summary(header);
    RIDGELINE_ASSIGN_OR_RETURN(writer_,
                               engine_.ImportSequence(rpc_.caller(), message.parent, message.sequence_id, std::move(header)));
    summary_ = summary;
    return absl::OkStatus();
  }

  void Append(engine::IncomingChunk chunk, std::uint32_t crc32c) {
    if (absl::Status status = CheckChunk(chunk, crc32c, *summary_); !status.ok()) {
      FinishWith(status);
      return;
    }
    pending_.Start([this, &chunk] {
      return writer_->Append(std::move(chunk), rpc_.call_context(), [self = self_](const absl::Status& status) {
        self->pending_.Answered();
        self->GoOn(status);
      });
    });
  }

  absl::Status Commit(const v1::SequenceTrailer& trailer) {
    RIDGELINE_RETURN_IF_ERROR(CheckTrailer(trailer, *summary_));
    RIDGELINE_ASSIGN_OR_RETURN(const std::string name, writer_->Commit());
    RIDGELINE_ASSIGN_OR_RETURN(const engine::kv_cache::SequenceInfo sequence,
                               engine_.kv_caches().GetSequence(rpc_.caller(), name));
    response_ = Serialize(ToMessage(sequence));
    return absl::OkStatus();
  }

  void GoOn(const absl::Status& status) {
    if (status.ok()) {
      StartRead(&request_);
    } else {
      FinishWith(status);
    }
  }

  // When the client hears of it, what is not in a sequence has been given back.
  void FinishWith(const absl::Status& status) {
    writer_.reset();
    Finish(rpc_.Close(status));
  }

  Rpc rpc_;
  grpc::ByteBuffer& response_;
  engine::Engine& engine_;
  PendingCall pending_;
  std::shared_ptr<ImportReactor> self_;
  std::unique_ptr<engine::SequenceWriter> writer_;
  std::optional<SequenceSummary> summary_;  // set with writer_
  grpc::ByteBuffer request_;                // of the read under way
};

}  // namespace

ImportReactorBase* StartSequenceImport(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context,
                                       grpc::ByteBuffer& response, engine::Engine& engine) {
  auto reactor = std::make_shared<ImportReactor>(shared, metrics, context, response, engine);
  reactor->Start(reactor);
  return reactor.get();
}

}  // namespace ridgeline::api
