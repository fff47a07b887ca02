#include "server/engine/trace/trace_recorder.h"

#include <utility>

#include "server/base/error.h"

namespace ridgeline::engine {
namespace {

constexpr absl::Duration kRetryDelay = absl::Seconds(1);

}  // namespace

absl::Status TraceRecorder::Begin(absl::Time now, std::size_t max_records) {
  base::MutexLock lock(&mutex_);
  if (is_on_.load(std::memory_order_relaxed)) {
    const absl::Status refusal = absl::ResourceExhaustedError("another capture is running; one runs at a time");
    return base::WithRetryDelay(base::WithReason(refusal, base::kReasonCaptureRunning), kRetryDelay);
  }
  max_records_ = max_records;
  num_records_ = 0;
  records_ = {.begin = now};
  is_on_.store(true, std::memory_order_relaxed);
  return absl::OkStatus();
}

TraceRecords TraceRecorder::End(absl::Time now) {
  base::MutexLock lock(&mutex_);
  is_on_.store(false, std::memory_order_relaxed);
  records_.end = now;
  return std::exchange(records_, {});
}

bool TraceRecorder::Admits(absl::Time begin) {
  if (!is_on_.load(std::memory_order_relaxed) || begin < records_.begin) return false;
  if (num_records_ >= max_records_) {
    ++records_.dropped;
    return false;
  }
  ++num_records_;
  return true;
}

void TraceRecorder::Add(CallRecord call) {
  base::MutexLock lock(&mutex_);
  if (Admits(call.begin)) records_.calls.push_back(std::move(call));
}

void TraceRecorder::Add(RequestRecord request) {
  base::MutexLock lock(&mutex_);
  if (Admits(request.arrival)) records_.requests.push_back(std::move(request));
}

void TraceRecorder::Add(LaunchRecord launch) {
  base::MutexLock lock(&mutex_);
  if (Admits(launch.begin)) records_.launches.push_back(std::move(launch));
}

}  // namespace ridgeline::engine
