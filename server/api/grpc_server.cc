#include "server/api/grpc_server.h"

#include <malloc.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "google/protobuf/stubs/logging.h"
#include "grpcpp/ext/channelz_service_plugin.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "ridgeline/v1/attention.grpc.pb.h"
#include "ridgeline/v1/benchmark.grpc.pb.h"
#include "ridgeline/v1/device.grpc.pb.h"
#include "ridgeline/v1/fused.grpc.pb.h"
#include "ridgeline/v1/kv_cache.grpc.pb.h"
#include "server/api/attention_service.h"
#include "server/api/benchmark_service.h"
#include "server/api/device_service.h"
#include "server/api/fused_service.h"
#include "server/api/kv_cache_service.h"
#include "server/api/rpc.h"
#include "server/api/unknown_method.h"
#include "server/base/clock.h"
#include "server/base/status_macros.h"

namespace ridgeline::api {
namespace {

constexpr absl::string_view kUnixScheme = "unix:";

// gRPC unlinks a socket file that is in the way, whoever serves on it: a live server is an error here, a dead one's file goes.
absl::Status CheckUnixSocketIsFree(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the path of ", path, " is too long for a unix socket: at most ", sizeof(address.sun_path) - 1, " bytes"));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return absl::UnavailableError("no socket could be made");
  const bool in_use = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(probe);
  if (in_use) return absl::UnavailableError(absl::StrCat("another process serves on unix:", path));
  return absl::OkStatus();
}

std::string WithPort(const std::string& address, int port) {
  if (absl::StartsWith(address, kUnixScheme)) return address;
  return absl::StrCat(address.substr(0, address.rfind(':') + 1), port);
}

// gRPC reads messages into pieces of malloc's memory. As it comes, glibc gives memory back to the system as soon as 128 KiB at
// the end of a heap are free, and the next message takes a page fault for each of its pages again: measured, a third of the
// time of a call with 16 MiB (tests/bench/RESULTS.md).
void KeepMessageMemory() {
  constexpr int kKeptBytesPerHeap = 256 << 20;
  mallopt(M_TRIM_THRESHOLD, kKeptBytesPerHeap);
}

class GrpcServerImpl : public GrpcServer {
 public:
  GrpcServerImpl(const GrpcServerOptions& options, engine::Engine& engine, base::MetricsRegistry& registry)
      : shared_(registry, engine.trace(), options.instance_id, !options.tls.client_authority.empty()),
        unknown_methods_(shared_) {
    services_.push_back(CreateAttentionService(shared_, engine));
    services_.push_back(CreateBenchmarkService(shared_, engine));
    services_.push_back(CreateDeviceService(shared_, engine, options.device_selection_reason));
    services_.push_back(CreateFusedService(shared_, engine));
    services_.push_back(CreateKvCacheService(shared_, engine));
  }

  ~GrpcServerImpl() override {
    if (server_ != nullptr) Shutdown(absl::ZeroDuration());
  }

  absl::Status Start(const GrpcServerOptions& options) {
    KeepMessageMemory();
    google::protobuf::SetLogHandler(nullptr);  // a client's bad bytes are its error, not the operator's log lines
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    if (options.channelz) grpc::channelz::experimental::InitChannelzService();
    grpc::ServerBuilder builder;
    SetConnectionLimits(options.limits, builder);
    // Two daemons must not share a port by accident.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    RIDGELINE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ServerCredentials> credentials, MakeServerCredentials(options.tls));
    std::vector<int> ports(options.addresses.size());
    for (std::size_t i = 0; i < ports.size(); ++i) {
      absl::string_view path = options.addresses[i];
      const bool is_unix = absl::ConsumePrefix(&path, kUnixScheme);
      if (is_unix) RIDGELINE_RETURN_IF_ERROR(CheckUnixSocketIsFree(std::string(path)));
      builder.AddListeningPort(options.addresses[i], is_unix ? grpc::InsecureServerCredentials() : credentials, &ports[i]);
    }
    for (const auto& service : services_) builder.RegisterService(service.get());
    builder.RegisterCallbackGenericService(&unknown_methods_);
    server_ = builder.BuildAndStart();
    for (std::size_t i = 0; i < ports.size(); ++i) {
      if (server_ == nullptr || ports[i] == 0)
        return absl::UnavailableError(absl::StrCat("cannot listen on ", options.addresses[i]));
      addresses_.push_back(WithPort(options.addresses[i], ports[i]));
    }
    SetServing(false);
    return absl::OkStatus();
  }

  const std::vector<std::string>& addresses() const override { return addresses_; }

  void SetServing(bool serving) override {
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus(serving);
    for (const char* name : {v1::AttentionService::service_full_name(), v1::BenchmarkService::service_full_name(),
                             v1::DeviceService::service_full_name(), v1::FusedService::service_full_name(),
                             v1::KvCacheService::service_full_name()}) {
      health->SetServingStatus(name, serving);
    }
  }

  void Shutdown(absl::Duration timeout) override {
    server_->Shutdown(absl::ToChronoTime(base::SystemTime() + timeout));
    server_->Wait();
    server_.reset();
  }

 private:
  RpcContext shared_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  UnknownMethodService unknown_methods_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> addresses_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> StartGrpcServer(const GrpcServerOptions& options, engine::Engine& engine,
                                                            base::MetricsRegistry& registry) {
  auto server = std::make_unique<GrpcServerImpl>(options, engine, registry);
  RIDGELINE_RETURN_IF_ERROR(server->Start(options));
  return server;
}

}  // namespace ridgeline::api
