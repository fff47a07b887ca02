// What the client's files that see gRPC's headers share.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/cpp/retry.h"
#include "google/protobuf/wrappers.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/status.h"
#include "ridgeline/v1/attention.grpc.pb.h"
#include "ridgeline/v1/benchmark.grpc.pb.h"
#include "ridgeline/v1/device.grpc.pb.h"
#include "ridgeline/v1/fused.grpc.pb.h"
#include "ridgeline/v1/kv_cache.grpc.pb.h"

namespace ridgeline::client {

// As error.h describes it.
absl::Status ToAbsl(const grpc::Status& status);

// grpc.health.v1.HealthCheckRequest { string service = 1 } and HealthCheckResponse { ServingStatus status = 1 } have the wire
// form of these two well-known types; the packages that carry gRPC carry no generated code for them.
using HealthCheckRequest = google::protobuf::StringValue;
using HealthCheckResponse = google::protobuf::Int32Value;
using HealthStub = grpc::TemplatedGenericStub<HealthCheckRequest, HealthCheckResponse>;

class Client::Impl {
 public:
  Impl(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials, ClientOptions client_options);

  // Sets the deadline and the metadata that every call carries.
  void Prepare(grpc::ClientContext& context, absl::Time deadline) const;

  // Runs `rpc(context)` until it succeeds, a retry can't help, or time is up.
  template <typename Rpc>
  absl::Status Call(Rpc rpc, bool may_retry = true) const {
    const absl::Time deadline = absl::Now() + options.timeout;
    for (int num_failed = 1;; ++num_failed) {
      grpc::ClientContext context;
      Prepare(context, deadline);
      absl::Status status = ToAbsl(rpc(context));
      if (status.ok() || !may_retry) return status;
      absl::BitGen random;
      const std::optional<absl::Duration> wait =
          NextBackoff(options.retry, num_failed, status, deadline - absl::Now(), absl::Uniform(random, 0.0, 1.0));
      if (!wait.has_value()) return status;
      absl::SleepFor(*wait);
    }
  }

  // A unary call of a generated stub: `rpc` is one of the stub's methods.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Unary(Stub& stub, grpc::Status (Stub::*rpc)(grpc::ClientContext*, const Request&, Response*),
                                 const Request& request = {}, bool may_retry = true) const {
    Response response;
    absl::Status status =
        Call([&](grpc::ClientContext& context) { return (stub.*rpc)(&context, request, &response); }, may_retry);
    if (!status.ok()) return status;
    return response;
  }

  const ClientOptions options;
  const std::shared_ptr<grpc::Channel> channel;
  v1::AttentionService::Stub attention;
  v1::DeviceService::Stub device;
  v1::BenchmarkService::Stub benchmark;
  v1::FusedService::Stub fused;
  v1::KvCacheService::Stub kv_cache;
  HealthStub health;
};

}  // namespace ridgeline::client
