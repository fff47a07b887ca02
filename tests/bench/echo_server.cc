#include "tests/bench/echo_server.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
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

using EchoBase = v1::AttentionService::WithRawCallbackMethod_Attend<v1::AttentionService::Service>;

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
  std::puts("ready");
  std::fflush(stdout);
  char ignored;
  while (read(STDIN_FILENO, &ignored, 1) > 0) continue;
  server->Shutdown();
  return 0;
}

}  // namespace ridgeline::bench
