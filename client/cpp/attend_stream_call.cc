#include "client/cpp/attend_stream_call.h"

#include <utility>

#include "client/cpp/error.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace ridgeline::client {
namespace {

constexpr char kAttendStream[] = "/ridgeline.v1.AttentionService/AttendStream";

}  // namespace

AttendStreamCall::AttendStreamCall(const std::shared_ptr<grpc::Channel>& channel, AttendStreamEvents& events)
    : channel_(channel), stub_(channel), events_(events) {}

void AttendStreamCall::Start() {
  self_ = shared_from_this();
  StreamThreads::Thread* const thread = StreamThreads::Get().Join(*channel_);
  if (thread == nullptr) return End(absl::ResourceExhaustedError("no thread could be started"));
  call_ = stub_.PrepareCall(&context_, kAttendStream, &thread->queue);
  call_->StartCall(&started_operation_);
}

void AttendStreamCall::Send(const EncodedRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (!reading_ || writes_done_) return;
  waiting_.push_back(request);
  GoOnWriting();
}

void AttendStreamCall::WritesDone() {
  absl::MutexLock lock(&mutex_);
  writes_done_ = true;
  GoOnWriting();
}

void AttendStreamCall::GoOnWriting() {
  if (!may_write_ || writing_) return;
  if (!waiting_.empty()) {
    writing_ = true;
    call_->Write(waiting_.front().bytes_->buffer, &write_operation_);
  } else if (writes_done_ && !std::exchange(said_writes_done_, true)) {
    writing_ = true;
    call_->WritesDone(&write_operation_);
  }
}

void AttendStreamCall::FinishIfIdle() {
  if (!reading_ && !writing_) call_->Finish(&status_, &finish_operation_);
}

void AttendStreamCall::OnStarted(bool ok) {
  absl::MutexLock lock(&mutex_);
  reading_ = may_write_ = ok;
  if (!ok) return FinishIfIdle();
  call_->Read(&answer_bytes_, &read_operation_);
  GoOnWriting();
}

void AttendStreamCall::OnRead(bool ok) {
  if (!ok) {
    absl::MutexLock lock(&mutex_);
    reading_ = may_write_ = false;
    return FinishIfIdle();
  }
  if (!answer_is_garbage_) {
    answer_is_garbage_ = !grpc::SerializationTraits<v1::AttendResponse>::Deserialize(&answer_bytes_, &answer_).ok();
    if (answer_is_garbage_) {
      Cancel();
    } else {
      events_.OnAnswer(answer_);
    }
  }
  call_->Read(&answer_bytes_, &read_operation_);
}

void AttendStreamCall::OnWritten(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (!waiting_.empty()) waiting_.pop_front();
  // After a failed write the read fails too, and ends the stream.
  if (!ok) may_write_ = false;
  GoOnWriting();
  FinishIfIdle();
}

void AttendStreamCall::OnFinished(bool /*ok*/) {
  StreamThreads::Get().Leave(*channel_);
  End(answer_is_garbage_ ? absl::InternalError("the server's answer is no AttendResponse")
                         : ErrorFromWire(status_.error_code(), status_.error_message(), status_.error_details()));
}

void AttendStreamCall::End(const absl::Status& status) {
  AttendStreamEvents& events = events_;
  // May delete this, and so lets go of the channel before anybody hears of the end.
  { const std::shared_ptr<AttendStreamCall> self = std::move(self_); }
  events.OnEnd(status);
}

}  // namespace ridgeline::client
