#include "server/api/self_call.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "server/base/clock.h"

namespace ridgeline::api {

void SelfCall::Connect(const std::vector<std::string>& addresses, bool has_tls) {
  const auto open = std::find_if(addresses.begin(), addresses.end(),
                                 [&](const std::string& address) { return !has_tls || absl::StartsWith(address, "unix:"); });
  if (open == addresses.end()) return;
  base::MutexLock lock(&mutex_);
  stub_ = v1::BenchmarkService::NewStub(grpc::CreateChannel(*open, grpc::InsecureChannelCredentials()));
}

absl::Status SelfCall::Run() {
  constexpr absl::Duration kTimeout = absl::Seconds(5);
  std::shared_ptr<v1::BenchmarkService::Stub> stub;
  {
    base::MutexLock lock(&mutex_);
    stub = stub_;
  }
  if (stub == nullptr) {
    return absl::UnimplementedError("the daemon listens on no address that takes calls without credentials, such as its own");
  }
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(base::SystemTime() + kTimeout));
  v1::Roofline answer;
  const grpc::Status status = stub->GetRoofline(&context, v1::GetRooflineRequest(), &answer);
  if (status.ok()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the daemon's call of itself failed: ", status.error_message()));
}

}  // namespace ridgeline::api
