// AsyncAttendStream's other half, which speaks gRPC.
//
//   Start ─► OnStarted ─► Read ─► OnRead ─► parse ─► OnAnswer ─► Read ... ─► no more: Finish ─► OnFinished ─► OnEnd
//                  └► Write the first of waiting_ ─► OnWritten ─► Write the next ... ─► WritesDone
#pragma once

#include <deque>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/async_attend_stream.h"
#include "client/cpp/stream_threads.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace ridgeline::client {

struct EncodedRequest::Bytes {
  grpc::ByteBuffer buffer;
};

// Keeps itself alive until its end. `events` is used until its OnEnd has been called.
class AttendStreamCall final : public std::enable_shared_from_this<AttendStreamCall> {
 public:
  AttendStreamCall(const std::shared_ptr<grpc::Channel>& channel, AttendStreamEvents& events);

  // For the deadline and metadata; before Start.
  grpc::ClientContext& context() { return context_; }
  void Start() ABSL_LOCKS_EXCLUDED(mutex_);

  void Send(const EncodedRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  void WritesDone() ABSL_LOCKS_EXCLUDED(mutex_);
  void Cancel() { context_.TryCancel(); }

 private:
  // One of the members below, which come one at a time: a stream has one thread.
  class Operation final : public StreamOperation {
   public:
    Operation(AttendStreamCall& call, void (AttendStreamCall::*done)(bool ok)) : call_(call), done_(done) {}
    void Done(bool ok) override { (call_.*done_)(ok); }

   private:
    AttendStreamCall& call_;
    void (AttendStreamCall::*const done_)(bool ok);
  };

  void OnStarted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void End(const absl::Status& status);

  // Starts the next write, or says that there will be none, if it is time for either.
  void GoOnWriting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Once nothing else is under way.
  void FinishIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  AttendStreamEvents& events_;
  std::shared_ptr<AttendStreamCall> self_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  Operation started_operation_{*this, &AttendStreamCall::OnStarted};
  Operation read_operation_{*this, &AttendStreamCall::OnRead};
  Operation write_operation_{*this, &AttendStreamCall::OnWritten};
  Operation finish_operation_{*this, &AttendStreamCall::OnFinished};
  grpc::ByteBuffer answer_bytes_;
  v1::AttendResponse answer_;  // parsed into again and again
  bool answer_is_garbage_ = false;
  grpc::Status status_;

  absl::Mutex mutex_;
  std::deque<EncodedRequest> waiting_ ABSL_GUARDED_BY(mutex_);  // the first is being written while writing_
  bool may_write_ ABSL_GUARDED_BY(mutex_) = false;              // between the start and the end of reading
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool writes_done_ ABSL_GUARDED_BY(mutex_) = false;       // asked for
  bool said_writes_done_ ABSL_GUARDED_BY(mutex_) = false;  // passed on
};

}  // namespace ridgeline::client
