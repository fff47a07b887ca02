// The services on a socket of their own, with answers that a test chooses.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "ridgeline/v1/attention.grpc.pb.h"
#include "ridgeline/v1/benchmark.grpc.pb.h"
#include "ridgeline/v1/device.grpc.pb.h"
#include "ridgeline/v1/fused.grpc.pb.h"

namespace ridgeline::client {

class FakeServer final : public v1::AttentionService::Service {
 public:
  using AttendHandler = std::function<grpc::Status(const grpc::ServerContext&, const v1::AttendRequest&, v1::AttendResponse*)>;

  // Listens on a free port of the loopback, health service included, until destroyed.
  FakeServer() : device_(*this), benchmark_(*this), fused_(*this) {
    grpc::EnableDefaultHealthCheckService(true);
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    builder.RegisterService(&device_);
    builder.RegisterService(&benchmark_);
    builder.RegisterService(&fused_);
    builder.SetMaxReceiveMessageSize(-1);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~FakeServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  const std::string& address() const { return address_; }
  grpc::HealthCheckServiceInterface& health() { return *server_->GetHealthCheckService(); }

  using FuseHandler = std::function<grpc::Status(const v1::FuseRequest&, v1::FuseResponse*)>;

  // Set these before the first call.
  AttendHandler attend;
  FuseHandler fuse;
  v1::ListFusedOpsResponse fused_ops;
  v1::Device device;
  v1::MemoryStats memory_stats;
  v1::MemorySnapshot memory_snapshot;
  std::function<v1::MemoryPlan(const v1::PlanMemoryRequest&)> memory_plan;
  v1::Roofline roofline;

  int num_resets() const { return device_.num_resets; }

 private:
  grpc::Status Attend(grpc::ServerContext* context, const v1::AttendRequest* request, v1::AttendResponse* response) override {
    return attend(*context, *request, response);
  }

  // Answers each request before it reads the next; the first failure ends the stream.
  grpc::Status AttendStream(grpc::ServerContext* context,
                            grpc::ServerReaderWriter<v1::AttendResponse, v1::AttendRequest>* stream) override {
    v1::AttendRequest request;
    while (stream->Read(&request)) {
      v1::AttendResponse response;
      grpc::Status status = attend(*context, request, &response);
      if (!status.ok()) return status;
      stream->Write(response);
    }
    return grpc::Status::OK;
  }

  struct Device final : v1::DeviceService::Service {
    explicit Device(const FakeServer& fake) : server(fake) {}
    grpc::Status GetDevice(grpc::ServerContext*, const v1::GetDeviceRequest*, v1::Device* response) override {
      *response = server.device;
      return grpc::Status::OK;
    }
    grpc::Status GetMemoryStats(grpc::ServerContext*, const v1::GetMemoryStatsRequest*, v1::MemoryStats* response) override {
      *response = server.memory_stats;
      return grpc::Status::OK;
    }
    grpc::Status ResetPeakMemoryStats(grpc::ServerContext*, const v1::ResetPeakMemoryStatsRequest*,
                                      google::protobuf::Empty*) override {
      ++num_resets;
      return grpc::Status::OK;
    }
    grpc::Status EmptyMemoryCache(grpc::ServerContext*, const v1::EmptyMemoryCacheRequest*,
                                  v1::EmptyMemoryCacheResponse* response) override {
      response->set_released_bytes(4096);
      return grpc::Status::OK;
    }
    grpc::Status GetMemorySnapshot(grpc::ServerContext*, const v1::GetMemorySnapshotRequest* request,
                                   v1::MemorySnapshot* response) override {
      *response = server.memory_snapshot;
      if (request->format() == v1::MEMORY_SNAPSHOT_FORMAT_UNSPECIFIED) response->clear_file();
      return grpc::Status::OK;
    }
    grpc::Status PlanMemory(grpc::ServerContext*, const v1::PlanMemoryRequest* request, v1::MemoryPlan* response) override {
      *response = server.memory_plan(*request);
      return grpc::Status::OK;
    }
    const FakeServer& server;
    std::atomic<int> num_resets = 0;
  };

  struct Benchmark final : v1::BenchmarkService::Service {
    explicit Benchmark(const FakeServer& fake) : server(fake) {}
    grpc::Status GetRoofline(grpc::ServerContext*, const v1::GetRooflineRequest*, v1::Roofline* response) override {
      *response = server.roofline;
      return grpc::Status::OK;
    }
    const FakeServer& server;
  };

  struct Fused final : v1::FusedService::Service {
    explicit Fused(const FakeServer& fake) : server(fake) {}
    grpc::Status Fuse(grpc::ServerContext*, const v1::FuseRequest* request, v1::FuseResponse* response) override {
      return server.fuse(*request, response);
    }
    grpc::Status ListFusedOps(grpc::ServerContext*, const v1::ListFusedOpsRequest*,
                              v1::ListFusedOpsResponse* response) override {
      *response = server.fused_ops;
      return grpc::Status::OK;
    }
    const FakeServer& server;
  };

  Device device_;
  Benchmark benchmark_;
  Fused fused_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace ridgeline::client
