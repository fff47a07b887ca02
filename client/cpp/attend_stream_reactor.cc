#include "client/cpp/attend_stream_reactor.h"

#include <utility>

#include "client/cpp/error.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace ridgeline::client {
namespace {

constexpr char kAttendStream[] = "/ridgeline.v1.AttentionService/AttendStream";

}  // namespace

AttendStreamReactor::AttendStreamReactor(const std::shared_ptr<grpc::Channel>& channel, AttendStreamEvents& events)
    : stub_(channel), events_(events) {}

void AttendStreamReactor::Start() {
  self_ = shared_from_this();
  stub_.PrepareBidiStreamingCall(&context_, kAttendStream, grpc::StubOptions(), this);
  AddHold();
  StartRead(&answer_bytes_);
  StartCall();
}

void AttendStreamReactor::Send(const EncodedRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (!held_ || writes_done_) return;
  waiting_.push_back(request);
  if (!writing_) WriteNext();
}

void AttendStreamReactor::WritesDone() {
  absl::MutexLock lock(&mutex_);
  if (!held_ || std::exchange(writes_done_, true)) return;
  if (!writing_) StartWritesDone();
}

void AttendStreamReactor::WriteNext() {
  writing_ = true;
  StartWrite(&waiting_.front().bytes_->buffer);
}

void AttendStreamReactor::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  waiting_.pop_front();
  writing_ = false;
  // After a failed write the read fails too, and ends the stream.
  if (!ok || !held_) return;
  if (!waiting_.empty()) {
    WriteNext();
  } else if (writes_done_) {
    StartWritesDone();
  }
}

void AttendStreamReactor::OnReadDone(bool ok) {
  if (!ok) {
    absl::MutexLock lock(&mutex_);
    held_ = false;
    return RemoveHold();  // OnDone comes after this reaction
  }
  if (!answer_is_garbage_) {
    answer_is_garbage_ = !grpc::SerializationTraits<v1::AttendResponse>::Deserialize(&answer_bytes_, &answer_).ok();
    if (answer_is_garbage_) {
      Cancel();
    } else {
      events_.OnAnswer(answer_);
    }
  }
  StartRead(&answer_bytes_);
}

void AttendStreamReactor::OnDone(const grpc::Status& status) {
  const absl::Status ended = answer_is_garbage_
                                 ? absl::InternalError("the server's answer is no AttendResponse")
                                 : ErrorFromWire(status.error_code(), status.error_message(), status.error_details());
  AttendStreamEvents& events = events_;
  // May delete this, and so lets go of the channel before anybody hears of the end. Whoever lets go of the last channel joins
  // gRPC's threads, and this is one of them.
  { const std::shared_ptr<AttendStreamReactor> self = std::move(self_); }
  events.OnEnd(ended);
}

}  // namespace ridgeline::client
