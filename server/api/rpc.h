// What every call has in common, whatever its method: an id, its place in the metrics, metadata, its one status.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "server/base/log_sampler.h"
#include "server/base/metrics.h"
#include "server/base/mutex.h"
#include "server/engine/engine.h"
#include "server/engine/kv_cache/resources.h"
#include "server/engine/trace/trace_recorder.h"
#include "server/engine/trace/trace_records.h"

namespace ridgeline::api {

// The series of one method. Thread-safe.
class MethodMetrics {
 public:
  MethodMetrics(base::MetricsRegistry& registry, std::string method);

  void Count(grpc::StatusCode code, absl::Duration duration);
  const std::string& method() const { return method_; }  // "ridgeline.v1.AttentionService/Attend"

 private:
  static constexpr std::size_t kNumCodes = 17;

  base::MetricsRegistry& registry_;
  const std::string method_;
  const base::Histogram duration_seconds_;
  base::Mutex mutex_;
  // A code's series exists from its first use on.
  std::array<std::optional<base::Counter>, kNumCodes> requests_total_ ABSL_GUARDED_BY(mutex_);
};

// What the handlers share. Outlives every call.
class RpcContext {
 public:
  // `registry` and `trace` outlive it. `clients_have_certificates`: those who call over TCP do, and are known by them.
  RpcContext(base::MetricsRegistry& registry, engine::TraceRecorder& trace, std::string instance_id,
             bool clients_have_certificates);

  MethodMetrics& metrics(std::string_view service, std::string_view method);
  const std::string& instance_id() const { return instance_id_; }
  bool clients_have_certificates() const { return clients_have_certificates_; }
  std::string NextRequestId();
  engine::TraceRecorder& trace() { return trace_; }
  base::LogSampler& fault_lines() { return fault_lines_; }

 private:
  base::MetricsRegistry& registry_;
  engine::TraceRecorder& trace_;
  const std::string instance_id_;
  const bool clients_have_certificates_;
  base::LogSampler fault_lines_;
  std::atomic<std::uint64_t> num_requests_{0};
  base::Mutex mutex_;
  // Filled while services are made; handlers keep the references.
  std::map<std::string, std::unique_ptr<MethodMetrics>> methods_ ABSL_GUARDED_BY(mutex_);
};

// One call, from its arrival to its status.
class Rpc {
 public:
  // Adds the metadata x-ridgeline-instance, initial and trailing, and x-ridgeline-request, trailing.
  Rpc(RpcContext& shared, MethodMetrics& metrics, grpc::ServerContextBase& context);

  engine::CallContext call_context() const;
  // Who calls: by its certificate, or else by the call's metadata, x-ridgeline-client and x-ridgeline-session, empty where they
  // are missing.
  engine::kv_cache::Caller caller() const;

  // The status to finish with; counts and times the call, and logs it: at level debug, or as an error if the fault is the
  // server's. Call once.
  grpc::Status Close(const absl::Status& status);

 private:
  void LogCall(const absl::Status& status, absl::Duration duration) const;

  RpcContext& shared_;
  MethodMetrics& metrics_;
  const grpc::ServerContextBase& context_;
  const engine::TraceOrigin origin_;
  const absl::Time arrival_;
};

}  // namespace ridgeline::api
