#include "server/api/device_service.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/support/byte_buffer.h"
#include "ridgeline/v1/device.grpc.pb.h"
#include "server/api/gpu_status_converter.h"
#include "server/api/memory_converter.h"
#include "server/api/trace_stream.h"
#include "server/api/unary.h"
#include "server/base/clock.h"
#include "server/base/status_macros.h"
#include "server/base/version.h"
#include "server/engine/kv_cache/kv_cache_store.h"
#include "server/engine/memory_plan/memory_plan.h"

namespace ridgeline::api {
namespace {

using RawDeviceService =
    v1::DeviceService::WithRawCallbackMethod_CaptureTrace<v1::DeviceService::WithRawCallbackMethod_GetMemorySnapshot<
        v1::DeviceService::WithRawCallbackMethod_PlanMemory<v1::DeviceService::CallbackService>>>;

class DeviceService : public RawDeviceService {
 public:
  DeviceService(RpcContext& shared, engine::Engine& engine, std::string selection_reason)
      : shared_(shared),
        engine_(engine),
        selection_reason_(std::move(selection_reason)),
        get_device_(shared.metrics(v1::DeviceService::service_full_name(), "GetDevice")),
        get_load_(shared.metrics(v1::DeviceService::service_full_name(), "GetLoad")),
        capture_trace_(shared.metrics(v1::DeviceService::service_full_name(), "CaptureTrace")),
        get_memory_stats_(shared.metrics(v1::DeviceService::service_full_name(), "GetMemoryStats")),
        reset_peak_memory_stats_(shared.metrics(v1::DeviceService::service_full_name(), "ResetPeakMemoryStats")),
        empty_memory_cache_(shared.metrics(v1::DeviceService::service_full_name(), "EmptyMemoryCache")),
        get_memory_snapshot_(shared.metrics(v1::DeviceService::service_full_name(), "GetMemorySnapshot")),
        plan_memory_(shared.metrics(v1::DeviceService::service_full_name(), "PlanMemory")) {}

  grpc::ServerUnaryReactor* GetDevice(grpc::CallbackServerContext* context, const v1::GetDeviceRequest*,
                                      v1::Device* response) override {
    return AnswerNow(shared_, get_device_, context, [&] {
      FillDevice(*response);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context, const v1::GetLoadRequest*,
                                    v1::Load* response) override {
    return AnswerNow(shared_, get_load_, context, [&] {
      FillLoad(*response);
      return absl::OkStatus();
    });
  }

  TraceReactorBase* CaptureTrace(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override {
    // gRPC made the buffer, not const, for this call.
    return StartTraceStream(shared_, capture_trace_, *context, const_cast<grpc::ByteBuffer&>(*request), engine_);
  }

  grpc::ServerUnaryReactor* GetMemoryStats(grpc::CallbackServerContext* context, const v1::GetMemoryStatsRequest*,
                                           v1::MemoryStats* response) override {
    return AnswerNow(shared_, get_memory_stats_, context, [&] {
      *response = ToMessage(engine_.device().memory_stats());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ResetPeakMemoryStats(grpc::CallbackServerContext* context, const v1::ResetPeakMemoryStatsRequest*,
                                                 google::protobuf::Empty*) override {
    return AnswerNow(shared_, reset_peak_memory_stats_, context, [&] {
      engine_.device().ResetPeakMemoryStats();
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* EmptyMemoryCache(grpc::CallbackServerContext* context, const v1::EmptyMemoryCacheRequest*,
                                             v1::EmptyMemoryCacheResponse* response) override {
    return AnswerNow(shared_, empty_memory_cache_, context, [&] {
      response->set_released_bytes(engine_.device().EmptyMemoryCache());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* GetMemorySnapshot(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) override {
    return AnswerNow<v1::GetMemorySnapshotRequest>(
        shared_, get_memory_snapshot_, context, request, response,
        [&](const v1::GetMemorySnapshotRequest& which, const Rpc&) -> absl::StatusOr<v1::MemorySnapshot> {
          return ToMessage(engine_.device().memory_snapshot(), which);
        });
  }

  grpc::ServerUnaryReactor* PlanMemory(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    return AnswerNow<v1::PlanMemoryRequest>(
        shared_, plan_memory_, context, request, response,
        [&](const v1::PlanMemoryRequest& what, const Rpc&) -> absl::StatusOr<v1::MemoryPlan> {
          RIDGELINE_ASSIGN_OR_RETURN(const auto plan_request, FromMessage(what, engine_.device().info()));
          RIDGELINE_ASSIGN_OR_RETURN(const engine::MemoryPlan plan, engine::PlanMemory(plan_request));
          return ToMessage(plan);
        });
  }

 private:
  void FillDevice(v1::Device& message) const {
    const device::DeviceInfo& info = engine_.device().info();
    message.set_name(info.name);
    message.set_type(info.type == device::DeviceType::kCpu ? v1::DEVICE_TYPE_CPU : v1::DEVICE_TYPE_CUDA);
    message.set_selection_reason(selection_reason_);
    message.set_compute_units(info.compute_units);
    message.set_instruction_set(info.instruction_set);
    message.set_lanes(engine_.device().num_lanes());
    message.set_memory_bytes(info.memory_bytes);
    message.set_memory_limit_bytes(info.memory_limit_bytes);
    message.set_l1_cache_bytes(info.l1_cache_bytes);
    message.set_l2_cache_bytes(info.l2_cache_bytes);
    message.set_l3_cache_bytes(info.l3_cache_bytes);
    message.set_instance_id(shared_.instance_id());
    message.set_server_version(std::string(base::Version()));
    message.mutable_uptime()->set_seconds(absl::ToInt64Seconds(base::Clock::Real().Now() - start_));
    const std::optional<device::GpuStatus> gpu = engine_.device().gpu_status();
    if (gpu.has_value()) Convert(*gpu, *message.mutable_gpu());
  }

  void FillLoad(v1::Load& message) const {
    const engine::Load load = engine_.load();
    message.set_queued_requests(load.queued_requests);
    message.set_running_requests(load.running_requests);
    message.set_lanes(engine_.device().num_lanes());
    message.set_busy_lanes(load.busy_lanes);
    const engine::kv_cache::KvCacheStatistics caches = engine_.kv_caches().statistics();
    message.set_kv_caches(static_cast<std::int32_t>(caches.caches));
    message.set_used_kv_pages(caches.used_pages);
    message.set_free_kv_pages(caches.free_pages);
    message.set_instance_id(shared_.instance_id());
    message.set_draining(load.draining);
  }

  RpcContext& shared_;
  engine::Engine& engine_;
  const std::string selection_reason_;
  const absl::Time start_ = base::Clock::Real().Now();
  MethodMetrics& get_device_;
  MethodMetrics& get_load_;
  MethodMetrics& capture_trace_;
  MethodMetrics& get_memory_stats_;
  MethodMetrics& reset_peak_memory_stats_;
  MethodMetrics& empty_memory_cache_;
  MethodMetrics& get_memory_snapshot_;
  MethodMetrics& plan_memory_;
};

}  // namespace

std::unique_ptr<grpc::Service> CreateDeviceService(RpcContext& shared, engine::Engine& engine, std::string selection_reason) {
  return std::make_unique<DeviceService>(shared, engine, std::move(selection_reason));
}

}  // namespace ridgeline::api
