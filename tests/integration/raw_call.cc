#include "tests/integration/raw_call.h"

#include <vector>

#include "absl/time/clock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace ridgeline {
namespace {

std::string Flatten(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return "";
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

}  // namespace

RawAnswer CallRaw(const std::string& address, const std::string& method, const std::string& request, absl::Duration timeout) {
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  grpc::CompletionQueue queue;
  grpc::Slice slice(request);
  const grpc::ByteBuffer request_buffer(&slice, 1);
  grpc::ByteBuffer response_buffer;
  RawAnswer answer;
  const auto call = stub.PrepareUnaryCall(&context, method, request_buffer, &queue);
  call->StartCall();
  call->Finish(&response_buffer, &answer.status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  answer.response = Flatten(response_buffer);
  for (const auto& [key, value] : context.GetServerTrailingMetadata()) {
    answer.trailers.emplace(std::string(key.data(), key.size()), std::string(value.data(), value.size()));
  }
  return answer;
}

}  // namespace ridgeline
