#include "server/api/rpc.h"

#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/api/byte_buffer.h"
#include "server/api/status_to_grpc.h"
#include "server/base/log.h"

namespace ridgeline::api {
namespace {

// In google.rpc.Code's order, which is gRPC's.
constexpr const char* kCodeNames[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

// Faults that an operator must hear of; the rest are clients' mistakes or load, which the metrics count.
bool IsServerFault(absl::StatusCode code) {
  return code == absl::StatusCode::kInternal || code == absl::StatusCode::kUnknown || code == absl::StatusCode::kDataLoss;
}

// The first value of a key, empty if there is none.
std::string FindMetadata(const grpc::ServerContextBase& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) return "";
  return {found->second.data(), found->second.size()};
}

}  // namespace

MethodMetrics::MethodMetrics(base::MetricsRegistry& registry, std::string method)
    : registry_(registry),
      method_(std::move(method)),
      duration_seconds_(registry.AddHistogram("ridgeline_rpc_duration_seconds",
                                              "From a call's arrival to its status, by method.", base::LatencyBuckets(),
                                              {{"method", method_}})) {}

void MethodMetrics::Count(grpc::StatusCode code, absl::Duration duration) {
  duration_seconds_.Observe(absl::ToDoubleSeconds(duration));
  const auto index = static_cast<std::size_t>(code);
  base::MutexLock lock(&mutex_);
  std::optional<base::Counter>& counter = requests_total_[index];
  if (!counter.has_value()) {
    counter = registry_.AddCounter("ridgeline_rpc_requests_total", "Calls finished, by method and status code.",
                                   {{"method", method_}, {"code", kCodeNames[index]}});
  }
  counter->Increment();
}

RpcContext::RpcContext(base::MetricsRegistry& registry, std::string instance_id)
    : registry_(registry), instance_id_(std::move(instance_id)) {}

MethodMetrics& RpcContext::metrics(std::string_view service, std::string_view method) {
  std::string name = absl::StrCat(std::string(service), "/", std::string(method));
  base::MutexLock lock(&mutex_);
  std::unique_ptr<MethodMetrics>& metrics = methods_[name];
  if (metrics == nullptr) metrics = std::make_unique<MethodMetrics>(registry_, name);
  return *metrics;
}

std::string RpcContext::NextRequestId() { return absl::StrCat(instance_id_, "-", num_requests_.fetch_add(1) + 1); }

Rpc::Rpc(RpcContext& shared, MethodMetrics& metrics, grpc::ServerContextBase& context)
    : metrics_(metrics), context_(context), request_id_(shared.NextRequestId()), arrival_(absl::Now()) {
  context.AddTrailingMetadata("x-ridgeline-instance", shared.instance_id());
  context.AddTrailingMetadata("x-ridgeline-request", request_id_);
}

engine::CallContext Rpc::call_context() const {
  const std::chrono::system_clock::time_point deadline = context_.deadline();
  return {.request_id = request_id_,
          .caller = caller(),
          .deadline =
              deadline == std::chrono::system_clock::time_point::max() ? absl::InfiniteFuture() : absl::FromChrono(deadline),
          .max_answer_bytes = kMaxAnswerTensorBytes};
}

engine::kv_cache::Caller Rpc::caller() const {
  return {.client = FindMetadata(context_, "x-ridgeline-client"),
          .session_token = FindMetadata(context_, "x-ridgeline-session")};
}

grpc::Status Rpc::Close(const absl::Status& status) {
  if (IsServerFault(status.code())) {
    base::Log(
        base::LogLevel::kError, "request failed",
        {{"request", request_id_}, {"code", kCodeNames[static_cast<std::size_t>(status.code())]}, {"error", status.message()}});
  }
  grpc::Status wire = ToGrpc(status);
  metrics_.Count(wire.error_code(), absl::Now() - arrival_);
  return wire;
}

}  // namespace ridgeline::api
