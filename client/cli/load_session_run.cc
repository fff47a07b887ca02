#include "client/cli/load_session_run.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "client/cli/load_session_client.h"

namespace ridgeline::cli {
namespace {

constexpr int kMaxThreads = 16;
constexpr absl::Duration kShowEvery = absl::Milliseconds(200);

}  // namespace

SessionRun::SessionRun(const SessionLoad& load, const SessionRequests& requests, SessionSchedule& schedule, int num_threads)
    : load_(load), requests_(requests), schedule_(schedule), threads_(num_threads) {}

void SessionRun::StartClock() {
  start_ = TimedThreads::Clock::now();
  has_started_ = true;
}

double SessionRun::Now() const {
  if (!has_started_) return -load_.timing.warm_up_seconds;
  const TimedThreads::Clock::time_point start = start_;
  return std::chrono::duration<double>(TimedThreads::Clock::now() - start).count() - load_.timing.warm_up_seconds;
}

TimedThreads::Clock::time_point SessionRun::TimeOf(double seconds) const {
  const std::chrono::duration<double> since_start(seconds + load_.timing.warm_up_seconds);
  return start_.load() + std::chrono::duration_cast<TimedThreads::Clock::duration>(since_start);
}

bool SessionRun::IsOver() const {
  const LoadTiming& timing = load_.timing;
  return stopped_ || Now() >= timing.duration_seconds + (schedule_.open_loop() ? timing.drain_seconds : 0);
}

absl::Duration SessionRun::StreamTimeout() const {
  const LoadTiming& timing = load_.timing;
  return absl::Seconds(timing.duration_seconds + timing.drain_seconds - Now()) + load_.timeout;
}

void SessionRun::Fail(const absl::Status& failure) {
  ++num_failed_;
  if (absl::IsInvalidArgument(failure) || absl::IsUnimplemented(failure)) End(failure);
  absl::MutexLock lock(&mutex_);
  outcome_.first_failure.Update(failure);
}

void SessionRun::End(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mutex_);
    outcome_.ended_by.Update(reason);
  }
  stopped_ = true;
  threads_.Hurry();
}

void SessionRun::AddFilled() {
  if (++num_filled_ == load_.num_clients) all_filled_.Notify();
}

void SessionRun::AddEnded(const LoadOutcome& outcome) {
  {
    absl::MutexLock lock(&mutex_);
    outcome_.Add(outcome);
  }
  if (++num_ended_ == load_.num_clients) all_ended_.Notify();
}

LoadOutcome SessionRun::TakeOutcome() {
  absl::MutexLock lock(&mutex_);
  // A run that was ended early left nothing unsent that it should have sent.
  outcome_.num_unsent = outcome_.ended_by.ok() ? schedule_.CountUnsent() : 0;
  if (outcome_.ended_by.ok()) outcome_.elapsed_seconds = std::max(outcome_.elapsed_seconds, load_.timing.duration_seconds);
  return std::move(outcome_);
}

LoadOutcome RunSessions(absl::Span<const client::Client> channels, absl::Span<const std::string> caches,
                        const SessionLoad& load, const SessionRequests& requests, SessionSchedule& schedule,
                        absl::FunctionRef<void(const SessionLoadState&)> show) {
  std::vector<std::unique_ptr<SessionClient>> clients;
  // Declared after the clients: its threads end before the clients that they work for.
  SessionRun run(load, requests, schedule, std::min(load.num_clients, kMaxThreads));
  if (run.threads().num_threads() == 0) {
    run.End(absl::ResourceExhaustedError("no thread could be started"));
    return run.TakeOutcome();
  }
  for (int i = 0; i < load.num_clients; ++i) {
    clients.push_back(std::make_unique<SessionClient>(run, channels[i % channels.size()], caches[i % caches.size()], i));
  }
  if (!schedule.open_loop()) {
    for (const auto& client : clients) client->PostFill();
    while (!run.all_filled().WaitForNotificationWithTimeout(kShowEvery)) show({run.num_filled(), run.State()});
  }
  run.StartClock();
  for (const auto& client : clients) client->PostBegin();
  while (!run.all_ended().WaitForNotificationWithTimeout(kShowEvery)) show({std::nullopt, run.State()});
  return run.TakeOutcome();
}

}  // namespace ridgeline::cli
