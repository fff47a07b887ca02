#include "client/cpp/async_attend_stream.h"

#include <utility>

#include "client/cpp/attend_stream_reactor.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace ridgeline::client {

EncodedRequest::EncodedRequest(const v1::AttendRequest& request) {
  auto bytes = std::make_shared<Bytes>();
  bool own_buffer;
  // Fails only for a message that no buffer can hold; the server then refuses the empty one.
  static_cast<void>(grpc::SerializationTraits<v1::AttendRequest>::Serialize(request, &bytes->buffer, &own_buffer));
  bytes_ = std::move(bytes);
}

AsyncAttendStream::AsyncAttendStream(std::shared_ptr<AttendStreamReactor> reactor) : reactor_(std::move(reactor)) {}

AsyncAttendStream::~AsyncAttendStream() {
  if (reactor_ != nullptr) reactor_->Cancel();
}

void AsyncAttendStream::Send(const EncodedRequest& request) { reactor_->Send(request); }
void AsyncAttendStream::WritesDone() { reactor_->WritesDone(); }
void AsyncAttendStream::Cancel() { reactor_->Cancel(); }

}  // namespace ridgeline::client
