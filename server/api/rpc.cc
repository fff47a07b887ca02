#include "server/api/rpc.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/api/byte_buffer.h"
#include "server/api/server_credentials.h"
#include "server/api/status_to_grpc.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/base/trace_context.h"

namespace ridgeline::api {
namespace {

constexpr char kInstanceKey[] = "x-ridgeline-instance";

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

// gRPC keeps deadlines on a steady clock and says them on the system's, as that is now; ours goes its own way.
absl::Time DeadlineOf(const grpc::ServerContextBase& context) {
  const std::chrono::system_clock::time_point deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteFuture();
  return base::Clock::Real().Now() + (absl::FromChrono(deadline) - base::SystemTime());
}

// Lines about faults: enough to see what goes wrong.
constexpr int kFaultLinesPerSecond = 10;

// The caller's place in its own trace goes along, if it sends a valid one.
engine::TraceOrigin OriginOf(std::string request_id, const grpc::ServerContextBase& context) {
  engine::TraceOrigin origin{.request_id = std::move(request_id)};
  std::optional<base::TraceContext> caller = base::ParseTraceparent(FindMetadata(context, "traceparent"));
  if (!caller.has_value()) return origin;
  origin.trace_id = std::move(caller->trace_id);
  origin.parent_id = std::move(caller->parent_id);
  return origin;
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

RpcContext::RpcContext(base::MetricsRegistry& registry, engine::TraceRecorder& trace, std::string instance_id,
                       bool clients_have_certificates)
    : registry_(registry),
      trace_(trace),
      instance_id_(std::move(instance_id)),
      clients_have_certificates_(clients_have_certificates),
      fault_lines_(kFaultLinesPerSecond) {}

MethodMetrics& RpcContext::metrics(std::string_view service, std::string_view method) {
  std::string name = absl::StrCat(std::string(service), "/", std::string(method));
  base::MutexLock lock(&mutex_);
  std::unique_ptr<MethodMetrics>& metrics = methods_[name];
  if (metrics == nullptr) metrics = std::make_unique<MethodMetrics>(registry_, name);
  return *metrics;
}

std::string RpcContext::NextRequestId() { return absl::StrCat(instance_id_, "-", num_requests_.fetch_add(1) + 1); }

Rpc::Rpc(RpcContext& shared, MethodMetrics& metrics, grpc::ServerContextBase& context)
    : shared_(shared),
      metrics_(metrics),
      context_(context),
      origin_(OriginOf(shared.NextRequestId(), context)),
      arrival_(base::Clock::Real().Now()) {
  // Initial too: proxies learn by it which node is which instance, and most of them don't see trailers.
  context.AddInitialMetadata(kInstanceKey, shared.instance_id());
  context.AddTrailingMetadata(kInstanceKey, shared.instance_id());
  context.AddTrailingMetadata("x-ridgeline-request", origin_.request_id);
}

engine::CallContext Rpc::call_context() const {
  return {.origin = origin_, .caller = caller(), .deadline = DeadlineOf(context_), .max_answer_bytes = kMaxAnswerTensorBytes};
}

engine::kv_cache::Caller Rpc::caller() const {
  std::optional<std::string> proven_name;
  if (shared_.clients_have_certificates()) proven_name = NameInCertificate(context_);
  return {.client = proven_name.has_value() ? *std::move(proven_name) : FindMetadata(context_, "x-ridgeline-client"),
          .session_token = FindMetadata(context_, "x-ridgeline-session")};
}

void Rpc::LogCall(const absl::Status& status, absl::Duration duration) const {
  const bool is_fault = IsServerFault(status.code());
  const base::LogLevel level = is_fault ? base::LogLevel::kError : base::LogLevel::kDebug;
  if (!base::IsLogged(level)) return;
  std::int64_t held_back = 0;
  if (is_fault) {
    const std::optional<std::int64_t> admitted = shared_.fault_lines().Admit(base::Clock::Real().Now());
    if (!admitted.has_value()) return;
    held_back = *admitted;
  }
  std::vector<base::LogField> fields = {{"request", origin_.request_id},
                                        {"method", metrics_.method()},
                                        {"code", kCodeNames[static_cast<std::size_t>(status.code())]},
                                        {"seconds", absl::ToDoubleSeconds(duration)}};
  if (const std::string client = caller().client; !client.empty()) fields.emplace_back("client", client);
  if (!origin_.trace_id.empty()) {
    fields.emplace_back("trace_id", origin_.trace_id);
    fields.emplace_back("parent_id", origin_.parent_id);
  }
  if (!status.ok()) fields.emplace_back("error", status.message());
  if (held_back > 0) fields.emplace_back("held_back", held_back);
  base::Log(level, is_fault ? "request failed" : "request", fields);
}

grpc::Status Rpc::Close(const absl::Status& status) {
  const absl::Time now = base::Clock::Real().Now();
  grpc::Status wire = ToGrpc(status, origin_.request_id);
  metrics_.Count(wire.error_code(), now - arrival_);
  LogCall(status, now - arrival_);
  if (shared_.trace().is_on()) {
    shared_.trace().Add(engine::CallRecord{.origin = origin_,
                                           .method = metrics_.method(),
                                           .code = kCodeNames[static_cast<std::size_t>(wire.error_code())],
                                           .begin = arrival_,
                                           .end = now});
  }
  return wire;
}

}  // namespace ridgeline::api
