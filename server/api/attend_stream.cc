#include "server/api/attend_stream.h"

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/api/attend_converter.h"
#include "server/api/byte_buffer.h"
#include "server/base/error.h"
#include "server/base/mutex.h"

namespace ridgeline::api {
namespace {

// Enough to receive one request and send one answer while others compute.
constexpr std::size_t kMaxInFlight = 4;

// One request's place in the line.
struct Slot {
  std::shared_ptr<engine::Call> call;  // while the engine has it: a call keeps its callback, which keeps the slot
  std::optional<absl::Status> status;  // once it is answered
  grpc::ByteBuffer response;           // if the status is ok
};

// gRPC's threads and the device's meet here. Every decision is taken under the lock and carried out after it: gRPC may run a
// reaction inside the call that starts an operation.
class AttendStreamReactor : public AttendStreamBase {
 public:
  AttendStreamReactor(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context, engine::Engine& engine)
      : rpc_(shared, metrics, context), call_context_(rpc_.call_context()), engine_(engine) {}

  // Engine callbacks hold the reactor too: one may come after the call is done.
  void Start(std::shared_ptr<AttendStreamReactor> self) {
    self_ = std::move(self);
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        base::MutexLock lock(&mutex_);
        reads_done_ = true;
      }
      Advance();
      return;
    }
    auto slot = std::make_shared<Slot>();
    {
      base::MutexLock lock(&mutex_);
      line_.push_back(slot);
    }
    Submit(slot);
    ReadAgainIfRoom(/*after_read=*/true);
  }

  void OnWriteDone(bool ok) override {
    {
      base::MutexLock lock(&mutex_);
      writing_ = false;
      line_.pop_front();
      if (!ok) EndWith(absl::CancelledError("the client stopped reading"));
    }
    Advance();
    ReadAgainIfRoom(/*after_read=*/false);
  }

  void OnCancel() override {
    {
      base::MutexLock lock(&mutex_);
      EndWith(absl::CancelledError("the stream was cancelled or its deadline passed"));
    }
    Advance();
  }

  void OnDone() override { self_.reset(); }

 private:
  void Submit(const std::shared_ptr<Slot>& slot) {
    WireView wire = TakeView(request_);
    absl::StatusOr<engine::AttendRequest> request = ParseAttendRequest(wire.slices, std::move(wire.owner));
    if (!request.ok()) {
      SetAnswer(slot, std::move(request).status());
      return;
    }
    std::shared_ptr<engine::Call> call =
        engine_.Attend(*std::move(request), call_context_, [self = self_, slot](absl::StatusOr<engine::AttendResult> result) {
          if (result.ok()) {
            self->SetAnswer(slot, Serialize(*result));
          } else {
            self->SetAnswer(slot, result.status());
          }
        });
    bool unwanted;
    {
      base::MutexLock lock(&mutex_);
      if (!slot->status.has_value()) slot->call = call;
      unwanted = end_.has_value();
    }
    if (unwanted && call != nullptr) call->Cancel();
  }

  void SetAnswer(const std::shared_ptr<Slot>& slot, absl::StatusOr<grpc::ByteBuffer> answer) {
    std::shared_ptr<engine::Call> finished;
    {
      base::MutexLock lock(&mutex_);
      finished = std::move(slot->call);
      slot->status = answer.status();
      if (answer.ok()) slot->response = *std::move(answer);
    }
    Advance();
  }

  // Reads only happen from reactions, so that none starts on a call that is done.
  void ReadAgainIfRoom(bool after_read) {
    {
      base::MutexLock lock(&mutex_);
      if (after_read) reading_ = false;
      if (reading_ || reads_done_ || end_.has_value() || line_.size() >= kMaxInFlight) return;
      reading_ = true;
    }
    StartRead(&request_);
  }

  // The stream ends with `status`, once what is being written has left; answers further back are dropped.
  void EndWith(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!end_.has_value()) end_ = std::move(status);
  }

  // Takes the next step that the state allows: write the front answer, or finish.
  void Advance() {
    std::vector<std::shared_ptr<engine::Call>> unwanted;
    bool write = false;
    bool finish = false;
    absl::Status status;
    {
      base::MutexLock lock(&mutex_);
      if (finished_) return;
      const bool front_ready = !writing_ && !line_.empty() && line_.front()->status.has_value();
      if (front_ready && !end_.has_value() && !line_.front()->status->ok()) EndWith(*line_.front()->status);
      if (front_ready && !end_.has_value()) {
        writing_ = write = true;
        response_ = std::move(line_.front()->response);
      }
      if (reads_done_ && line_.empty()) EndWith(absl::OkStatus());
      if (end_.has_value() && !writing_) {
        finished_ = finish = true;
        status = *end_;
      }
      if (end_.has_value()) {
        for (const auto& slot : line_) unwanted.push_back(std::exchange(slot->call, nullptr));
      }
    }
    if (write) StartWrite(&response_);
    // Before the caller knows of the end, or what waits might append after its next call. The last first, or one's end might
    // let the next begin.
    for (auto call = unwanted.rbegin(); call != unwanted.rend(); ++call) {
      if (*call != nullptr) (*call)->Cancel();
    }
    if (finish) Finish(rpc_.Close(status));
  }

  Rpc rpc_;
  const engine::CallContext call_context_;  // of each request
  engine::Engine& engine_;
  std::shared_ptr<AttendStreamReactor> self_;
  grpc::ByteBuffer request_;   // of the read under way
  grpc::ByteBuffer response_;  // of the write under way

  base::Mutex mutex_;
  std::deque<std::shared_ptr<Slot>> line_
      ABSL_GUARDED_BY(mutex_);  // in request order; the front is being written or waited for
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool reads_done_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

AttendStreamBase* StartAttendStream(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context,
                                    engine::Engine& engine) {
  auto reactor = std::make_shared<AttendStreamReactor>(shared, metrics, context, engine);
  reactor->Start(reactor);
  return reactor.get();
}

}  // namespace ridgeline::api
