// An AttendStream without a thread of its own: answers come as events, on a few threads that a process keeps for all of them.
// For callers with many streams.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "ridgeline/v1/attention.pb.h"

namespace ridgeline::client {

// A request in its wire form: serialised once, then sent any number of times on any streams, several at once, without being
// copied. Copies share the bytes.
class EncodedRequest {
 public:
  explicit EncodedRequest(const v1::AttendRequest& request);

 private:
  friend class AttendStreamCall;
  struct Bytes;
  std::shared_ptr<const Bytes> bytes_;
};

// What happens on one stream. Events of one stream come one at a time, and from one thread; they should return soon, and may
// call the stream's methods.
class AttendStreamEvents {
 public:
  virtual ~AttendStreamEvents() = default;

  // The answer to the first request not answered yet.
  virtual void OnAnswer(const v1::AttendResponse& response) = 0;
  // The last event: OK after WritesDone and all answers, else why the stream broke off. The client that opened the stream lives
  // until then.
  virtual void OnEnd(const absl::Status& status) = 0;
};

class AttendStreamCall;

// Threads may share one. The methods return at once, and do nothing after the stream's end.
class AsyncAttendStream {
 public:
  explicit AsyncAttendStream(std::shared_ptr<AttendStreamCall> call);
  AsyncAttendStream(AsyncAttendStream&&) noexcept = default;
  AsyncAttendStream& operator=(AsyncAttendStream&&) = delete;
  // Cancels a stream that has not ended; OnEnd comes all the same.
  ~AsyncAttendStream();

  // Requests leave in the order of the calls; those that gRPC has no room for wait in memory.
  void Send(const EncodedRequest& request);
  // No more requests will be sent. Answers to those before still come.
  void WritesDone();
  void Cancel();

 private:
  std::shared_ptr<AttendStreamCall> call_;
};

}  // namespace ridgeline::client
