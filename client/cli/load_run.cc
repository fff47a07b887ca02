#include "client/cli/load_run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "client/cli/measurement.h"
#include "client/cpp/error.h"

namespace ridgeline::cli {
namespace {

constexpr absl::Duration kPauseAfterFailure = absl::Milliseconds(10);
constexpr absl::Duration kShowEvery = absl::Milliseconds(200);

using SteadyClock = std::chrono::steady_clock;

// What the threads of one run share.
class Run {
 public:
  Run(const LoadTiming& timing, LoadSchedule& schedule,
      const std::function<v1::AttendRequest(const ProblemShape&)>& make_request)
      : timing_(timing), schedule_(schedule), make_request_(make_request) {}

  // Sends one request after the other until the schedule or a failure ends it.
  void Work(const client::Client& channel) {
    LoadOutcome outcome;
    while (!stop_.HasBeenNotified()) {
      const std::optional<LoadSchedule::Item> item = schedule_.Next(Now());
      if (!item.has_value() || !WaitUntil(item->intended_seconds)) break;
      const absl::Status status = Send(channel, *item, outcome);
      if (!status.ok()) HandleFailure(status);
    }
    absl::MutexLock lock(&mutex_);
    outcome_.Add(outcome);
  }

  // Ends the run for a reason that no later request would change.
  void End(const absl::Status& reason) {
    absl::MutexLock lock(&mutex_);
    if (outcome_.ended_by.ok()) stop_.Notify();
    outcome_.ended_by.Update(reason);
  }

  LoadState State() const { return {Now(), num_answered_, num_failed_}; }

  // After every Work() has returned.
  LoadOutcome TakeOutcome() {
    absl::MutexLock lock(&mutex_);
    // A run that was ended early left nothing unsent that it should have sent.
    outcome_.num_unsent = outcome_.ended_by.ok() ? schedule_.CountUnsent() : 0;
    return std::move(outcome_);
  }

 private:
  double Now() const { return std::chrono::duration<double>(SteadyClock::now() - start_).count() - timing_.warm_up_seconds; }

  // False: the run was ended first.
  bool WaitUntil(double seconds) const {
    for (double now = Now(); now < seconds; now = Now()) {
      if (stop_.WaitForNotificationWithTimeout(absl::Seconds(seconds - now))) return false;
    }
    return true;
  }

  absl::Status Send(const client::Client& channel, const LoadSchedule::Item& item, LoadOutcome& outcome) {
    const v1::AttendRequest request = make_request_(item.work.shape);
    const double sent_seconds = Now();
    const absl::StatusOr<v1::AttendResponse> response = channel.Attend(request);
    const double done_seconds = Now();
    if (item.intended_seconds < 0) {
      ++outcome.num_warm_up;
      return response.status();
    }
    outcome.elapsed_seconds = std::max(outcome.elapsed_seconds, done_seconds);
    LoadCounts& counts = item.work.decode ? outcome.decode : outcome.prefill;
    ++counts.num_sent;
    const double send_delay = std::max(0.0, sent_seconds - item.intended_seconds);
    counts.send_delay.Add(send_delay);
    if (timing_.rate_per_second.has_value() && send_delay > kLateSeconds) ++counts.num_late;
    if (!response.ok()) {
      ++num_failed_;
      ++counts.failures_by_code[std::clamp(response.status().raw_code(), 0, kNumStatusCodes - 1)];
      return response.status();
    }
    ++num_answered_;
    ++counts.num_answered;
    counts.query_tokens += item.work.shape.batch * item.work.shape.query_tokens;
    counts.key_tokens += item.work.shape.batch * item.work.shape.key_tokens;
    counts.latency.Add(done_seconds - item.intended_seconds);
    counts.AddReport(response->report());
    return absl::OkStatus();
  }

  void HandleFailure(const absl::Status& failure) {
    {
      absl::MutexLock lock(&mutex_);
      if (outcome_.first_failure.ok()) outcome_.first_failure = failure;
    }
    if (absl::IsInvalidArgument(failure) || absl::IsUnimplemented(failure)) return End(failure);
    // Otherwise a server that refuses at once would be asked again as fast as this machine can.
    if (!timing_.rate_per_second.has_value()) {
      const absl::Duration pause = std::max(client::RetryDelay(failure).value_or(absl::ZeroDuration()), kPauseAfterFailure);
      WaitUntil(std::min(Now() + absl::ToDoubleSeconds(pause), timing_.duration_seconds));
    }
  }

  const SteadyClock::time_point start_ = SteadyClock::now();
  const LoadTiming& timing_;
  LoadSchedule& schedule_;
  const std::function<v1::AttendRequest(const ProblemShape&)>& make_request_;
  absl::Notification stop_;
  std::atomic<std::int64_t> num_answered_ = 0;
  std::atomic<std::int64_t> num_failed_ = 0;
  absl::Mutex mutex_;
  LoadOutcome outcome_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void LoadCounts::Add(const LoadCounts& other) {
  num_sent += other.num_sent;
  num_answered += other.num_answered;
  num_late += other.num_late;
  query_tokens += other.query_tokens;
  key_tokens += other.key_tokens;
  for (int code = 0; code < kNumStatusCodes; ++code) failures_by_code[code] += other.failures_by_code[code];
  latency.Append(other.latency);
  send_delay.Append(other.send_delay);
  queue.Append(other.queue);
  inputs.Append(other.inputs);
  kernel.Append(other.kernel);
  batch_requests += other.batch_requests;
  device_seconds += other.device_seconds;
}

void LoadCounts::AddReport(const v1::ExecutionReport& report) {
  const int batch = std::max(report.batch_requests(), 1);
  queue.Add(Seconds(report.queue_time()));
  inputs.Add(Seconds(report.upload_time()));
  kernel.Add(Seconds(report.kernel_time()));
  batch_requests += batch;
  device_seconds += Seconds(report.kernel_time()) / batch;
}

void SessionCounts::Add(const SessionCounts& other) {
  num_begun += other.num_begun;
  num_completed += other.num_completed;
  num_cancelled += other.num_cancelled;
  first_token.Append(other.first_token);
}

void LoadOutcome::Add(const LoadOutcome& other) {
  prefill.Add(other.prefill);
  decode.Add(other.decode);
  sessions.Add(other.sessions);
  num_warm_up += other.num_warm_up;
  num_unsent += other.num_unsent;
  elapsed_seconds = std::max(elapsed_seconds, other.elapsed_seconds);
  first_failure.Update(other.first_failure);
  ended_by.Update(other.ended_by);
}

LoadOutcome RunLoadThreads(absl::Span<const client::Client> channels, int num_workers, const LoadTiming& timing,
                           LoadSchedule& schedule, const std::function<v1::AttendRequest(const ProblemShape&)>& make_request,
                           absl::FunctionRef<void(const LoadState&)> show) {
  Run run(timing, schedule, make_request);
  std::atomic<int> num_working = num_workers;
  absl::Notification all_done;
  const auto work = [&](const client::Client& channel) {
    run.Work(channel);
    if (--num_working == 0) all_done.Notify();
  };
  std::vector<std::thread> workers;
  try {
    for (int i = 0; i < num_workers; ++i) workers.emplace_back(work, std::cref(channels[i % channels.size()]));
  } catch (const std::system_error& error) {
    const int num_missing = num_workers - static_cast<int>(workers.size());
    run.End(absl::ResourceExhaustedError(
        absl::StrCat("only ", workers.size(), " of ", num_workers, " client threads could be started: ", error.what())));
    if ((num_working -= num_missing) == 0) all_done.Notify();
  }
  while (!all_done.WaitForNotificationWithTimeout(kShowEvery)) show(run.State());
  for (std::thread& worker : workers) worker.join();
  LoadOutcome outcome = run.TakeOutcome();
  outcome.elapsed_seconds = std::max(outcome.elapsed_seconds, outcome.ended_by.ok() ? timing.duration_seconds : 0);
  return outcome;
}

}  // namespace ridgeline::cli
