#include "server/api/trace_stream.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpcpp/alarm.h"
#include "ridgeline/v1/trace.pb.h"
#include "server/api/byte_buffer.h"
#include "server/base/clock.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/engine/trace/chrome_trace.h"

namespace ridgeline::api {
namespace {

constexpr absl::Duration kDefaultDuration = absl::Seconds(1);
constexpr absl::Duration kLongestDuration = absl::Minutes(1);
constexpr std::int64_t kDefaultRecords = 50'000;
constexpr std::int64_t kMostRecords = 200'000;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

struct Plan {
  absl::Duration duration = kDefaultDuration;
  std::int64_t max_records = kDefaultRecords;
};

absl::StatusOr<Plan> ReadRequest(grpc::ByteBuffer& wire_request) {
  v1::CaptureTraceRequest request;
  RIDGELINE_RETURN_IF_ERROR(Parse(wire_request, request));
  Plan plan;
  if (request.has_duration()) {
    plan.duration = absl::Seconds(request.duration().seconds()) + absl::Nanoseconds(request.duration().nanos());
    if (plan.duration <= absl::ZeroDuration() || plan.duration > kLongestDuration) {
      return base::InvalidField(
          "duration", absl::StrCat("is ", absl::FormatDuration(plan.duration), "; it must be more than 0, up to 1 minute"));
    }
  }
  if (request.max_records() < 0 || request.max_records() > kMostRecords) {
    return base::InvalidField("max_records",
                              absl::StrCat("is ", request.max_records(), "; it must be from 1 to ", kMostRecords));
  }
  if (request.max_records() > 0) plan.max_records = request.max_records();
  return plan;
}

v1::TraceSummary Summarise(const engine::TraceRecords& records) {
  v1::TraceSummary summary;
  summary.set_calls(static_cast<std::int64_t>(records.calls.size()));
  summary.set_requests(static_cast<std::int64_t>(records.requests.size()));
  summary.set_launches(static_cast<std::int64_t>(records.launches.size()));
  std::int64_t num_spans = 0;
  for (const engine::LaunchRecord& launch : records.launches) num_spans += static_cast<std::int64_t>(launch.spans.size());
  summary.set_device_spans(num_spans);
  summary.set_dropped(records.dropped);
  const std::int64_t nanoseconds = absl::ToInt64Nanoseconds(records.end - records.begin);
  summary.mutable_duration()->set_seconds(nanoseconds / 1'000'000'000);
  summary.mutable_duration()->set_nanos(static_cast<std::int32_t>(nanoseconds % 1'000'000'000));
  return summary;
}

// Either the alarm or a write is under way until Finish, so its reactions never overlap, but for OnCancel.
class TraceReactor final : public TraceReactorBase {
 public:
  TraceReactor(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context, engine::Engine& engine)
      : rpc_(shared, metrics, context), engine_(engine) {}

  void Start(grpc::ByteBuffer& wire_request) {
    const absl::StatusOr<Plan> plan = ReadRequest(wire_request);
    absl::Status status = plan.status();
    if (status.ok()) status = engine_.trace().Begin(base::Clock::Real().Now(), static_cast<std::size_t>(plan->max_records));
    if (!status.ok()) {
      Finish(rpc_.Close(status));
      return;
    }
    alarm_.Set(absl::ToChronoTime(base::SystemTime() + plan->duration), [this](bool in_time) { StopCapturing(in_time); });
  }

  void OnCancel() override { alarm_.Cancel(); }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      Finish(rpc_.Close(absl::CancelledError("the client stopped reading")));
    } else {
      WriteNext();
    }
  }

  void OnDone() override { delete this; }

 private:
  void StopCapturing(bool in_time) {
    const engine::TraceRecords records = engine_.trace().End(base::Clock::Real().Now());
    if (!in_time) {
      Finish(rpc_.Close(absl::CancelledError("the capture was cancelled")));
      return;
    }
    json_ = engine::ChromeTraceJson(records, engine_.device().info().name, engine_.device().num_lanes());
    summary_ = Summarise(records);
    WriteNext();
  }

  void WriteNext() {
    v1::CaptureTraceResponse response;
    if (num_written_ < json_.size()) {
      response.set_json(json_.substr(num_written_, kPieceBytes));
      num_written_ += kPieceBytes;
    } else if (!is_summary_written_) {
      is_summary_written_ = true;
      *response.mutable_summary() = summary_;
    } else {
      Finish(rpc_.Close(absl::OkStatus()));
      return;
    }
    message_ = Serialize(response);
    StartWrite(&message_);
  }

  Rpc rpc_;
  engine::Engine& engine_;
  grpc::Alarm alarm_;
  std::string json_;
  v1::TraceSummary summary_;
  std::size_t num_written_ = 0;  // of json_
  bool is_summary_written_ = false;
  grpc::ByteBuffer message_;  // of the write under way
};

}  // namespace

TraceReactorBase* StartTraceStream(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context,
                                   grpc::ByteBuffer& request, engine::Engine& engine) {
  auto* const reactor = new TraceReactor(shared, metrics, context, engine);
  reactor->Start(request);
  return reactor;
}

}  // namespace ridgeline::api
