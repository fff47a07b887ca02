// AsyncAttendStream's other half, which speaks gRPC.
//
//   Send ─► waiting_ ─► StartWrite ─► OnWriteDone ─► next
//   StartRead ─► OnReadDone ─► parse ─► OnAnswer ─► StartRead
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/async_attend_stream.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"

namespace ridgeline::client {

struct EncodedRequest::Bytes {
  grpc::ByteBuffer buffer;
};

// Keeps itself alive until its OnDone. `events` is used until its OnEnd has been called.
class AttendStreamReactor final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                                  public std::enable_shared_from_this<AttendStreamReactor> {
 public:
  AttendStreamReactor(const std::shared_ptr<grpc::Channel>& channel, AttendStreamEvents& events);

  // For the deadline and metadata; before Start.
  grpc::ClientContext& context() { return context_; }
  void Start();

  void Send(const EncodedRequest& request);
  void WritesDone();
  void Cancel() { context_.TryCancel(); }

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  AttendStreamEvents& events_;
  std::shared_ptr<AttendStreamReactor> self_;
  grpc::ByteBuffer answer_bytes_;
  v1::AttendResponse answer_;  // parsed into again and again
  bool answer_is_garbage_ = false;

  absl::Mutex mutex_;
  std::deque<EncodedRequest> waiting_ ABSL_GUARDED_BY(mutex_);  // the first is being written while writing_
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool writes_done_ ABSL_GUARDED_BY(mutex_) = false;
  bool held_ ABSL_GUARDED_BY(mutex_) = true;  // writes may be started outside of reactions
};

}  // namespace ridgeline::client
