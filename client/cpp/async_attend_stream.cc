#include "client/cpp/async_attend_stream.h"

#include <utility>

#include "client/cpp/attend_stream_call.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace ridgeline::client {

EncodedRequest::EncodedRequest(const v1::AttendRequest& request) {
  auto bytes = std::make_shared<Bytes>();
  bool own_buffer;
  // Fails only for a message that no buffer can hold; the server then refuses the empty one.
  static_cast<void>(grpc::SerializationTraits<v1::AttendRequest>::Serialize(request, &bytes->buffer, &own_buffer));
  bytes_ = std::move(bytes);
}

AsyncAttendStream::AsyncAttendStream(std::shared_ptr<AttendStreamCall> call) : call_(std::move(call)) {}

AsyncAttendStream::~AsyncAttendStream() {
  if (call_ != nullptr) call_->Cancel();
}

void AsyncAttendStream::Send(const EncodedRequest& request) { call_->Send(request); }
void AsyncAttendStream::WritesDone() { call_->WritesDone(); }
void AsyncAttendStream::Cancel() { call_->Cancel(); }

}  // namespace ridgeline::client
