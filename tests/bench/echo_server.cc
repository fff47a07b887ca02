#include "tests/bench/echo_server.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ridgeline/v1/attention.grpc.pb.h"

namespace ridgeline::bench {
namespace {

grpc::ByteBuffer Prefix(const grpc::ByteBuffer& buffer, std::size_t bytes) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return {};
  std::vector<grpc::Slice> kept;
  for (const grpc::Slice& slice : slices) {
    if (bytes == 0) break;
    const std::size_t size = std::min(bytes, slice.size());
    kept.push_back(size == slice.size() ? slice : slice.sub(0, size));
    bytes -= size;
  }
  return grpc::ByteBuffer(kept.data(), kept.size());
}

// Answers each message of a stream before it reads the next.
class EchoStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit EchoStream(std::size_t response_bytes) : response_bytes_(response_bytes) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    response_ = Prefix(request_, response_bytes_);
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  const std::size_t response_bytes_;
  grpc::ByteBuffer request_, response_;
};

using EchoBase = v1::AttentionService::WithRawCallbackMethod_Attend<
    v1::AttentionService::WithRawCallbackMethod_AttendStream<v1::AttentionService::Service>>;

class EchoService : public EchoBase {
 public:
  explicit EchoService(std::size_t response_bytes) : response_bytes_(response_bytes) {}

  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    *response = Prefix(*request, response_bytes_);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttendStream(grpc::CallbackServerContext*) override {
    return new EchoStream(response_bytes_);
  }

 private:
  const std::size_t response_bytes_;
};

}  // namespace

int RunEchoServer(const std::string& address, long response_bytes) {
  EchoService service(static_cast<std::size_t>(response_bytes));
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  char ignored;
  while (read(STDIN_FILENO, &ignored, 1) > 0) continue;
  server->Shutdown();
  return 0;
}

}  // namespace ridgeline::bench
