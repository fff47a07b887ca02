#include "client/cli/load_session_client.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "client/cpp/error.h"

namespace ridgeline::cli {
namespace {

constexpr double kPauseAfterFailureSeconds = 10e-3;
// A cancelled step may still run; its sequence can be deleted when it has.
constexpr absl::Duration kBusyPause = absl::Milliseconds(5);
constexpr absl::Duration kBusyTimeout = absl::Seconds(30);

// Far enough apart that no two clients, layers or pieces of a context get the same seed.
std::uint64_t FillSeed(std::uint64_t seed, int client_idx, int layer, std::int64_t token) {
  return seed + (static_cast<std::uint64_t>(client_idx) << 40) + (static_cast<std::uint64_t>(layer) << 26) +
         2 * static_cast<std::uint64_t>(token / kMaxFillTokens);
}

std::size_t CodeOf(const absl::Status& failure) { return std::clamp(failure.raw_code(), 0, kNumStatusCodes - 1); }

}  // namespace

SessionClient::SessionClient(SessionRun& run, const client::Client& channel, const std::string& cache, int client_idx)
    : run_(run),
      channel_(channel),
      cache_(cache),
      client_idx_(client_idx),
      random_(run.requests().geometry().seed + 2 + client_idx) {}

void SessionClient::PostAt(TimedThreads::Clock::time_point time, std::function<void()> work) {
  run_.threads().PostAt(time, [this, work = std::move(work)] {
    absl::MutexLock lock(&posted_work_);
    work();
  });
}

void SessionClient::Fill() {
  plan_ = run_.schedule().Next(client_idx_, run_.Now());
  if (plan_.has_value() && !run_.IsOver()) {
    if (const absl::Status status = MakeSession(); !status.ok()) run_.End(status);
  }
  run_.AddFilled();
}

void SessionClient::Begin() {
  if (run_.IsOver()) return Retire();
  if (!plan_.has_value()) plan_ = run_.schedule().Next(client_idx_, run_.Now());
  if (!plan_.has_value()) return Retire();
  if (plan_->intended_seconds > run_.Now()) {
    return PostAt(run_.TimeOf(plan_->intended_seconds), [this] { Begin(); });
  }
  if (const absl::Status status = MakeSession(); !status.ok()) return GiveUp(status);
  // What filling took is not part of a closed loop's latency.
  if (!run_.schedule().open_loop()) plan_->intended_seconds = run_.Now();
  prefilled_tokens_ = decoded_tokens_ = 0;
  round_tokens_ = plan_->first_decode_tokens;
  is_first_step_ = true;
  if (plan_->intended_seconds >= 0) ++outcome_.sessions.num_begun;
  SendStep();
}

// Makes the sequence and fills it, unless that was done.
absl::Status SessionClient::MakeSession() {
  if (!sequence_.empty()) return absl::OkStatus();
  const absl::StatusOr<v1::Sequence> sequence = channel_.CreateSequence(cache_);
  if (!sequence.ok()) return sequence.status();
  sequence_ = sequence->name();
  decode_steps_ = run_.requests().DecodeSteps(sequence_);
  return FillSession();
}

absl::Status SessionClient::FillSession() {
  const SessionGeometry& geometry = run_.requests().geometry();
  for (int layer = 0; layer < geometry.layers; ++layer) {
    for (std::int64_t begin = 0; begin < plan_->fill_tokens && !run_.IsOver(); begin += kMaxFillTokens) {
      const std::int64_t tokens = std::min(kMaxFillTokens, plan_->fill_tokens - begin);
      const std::uint64_t seed = FillSeed(geometry.seed, client_idx_, layer, begin);
      const absl::Status status = channel_.AppendKeyValue(run_.requests().Fill(sequence_, layer, tokens, seed)).status();
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status SessionClient::DropSession() {
  plan_.reset();
  const std::string sequence = std::exchange(sequence_, "");
  if (sequence.empty()) return absl::OkStatus();
  const absl::Time give_up = absl::Now() + kBusyTimeout;
  for (;;) {
    const absl::Status status = channel_.DeleteSequence(sequence);
    if (absl::IsNotFound(status)) return absl::OkStatus();
    if (!absl::IsFailedPrecondition(status) || absl::Now() > give_up) return status;
    absl::SleepFor(kBusyPause);
  }
}

void SessionClient::OpenStream() {
  stream_ = std::make_shared<client::AsyncAttendStream>(channel_.OpenAsyncAttendStream(*this, run_.StreamTimeout()));
}

void SessionClient::SendStep() {
  // A closed loop sends nothing after the end; an open one completes what it began, until the run is over.
  if (run_.IsOver()) return Post([this] { Retire(); });
  const bool prefilling = IsPrefilling();
  if (!prefilling && decoded_tokens_ == round_tokens_) return Post([this] { EndRound(); });
  step_tokens_ =
      prefilling ? std::min(run_.requests().geometry().shape.query_tokens, plan_->prefill_tokens - prefilled_tokens_) : 1;
  const double now_seconds = run_.Now();
  intended_seconds_ = std::exchange(is_first_step_, false) ? plan_->intended_seconds : now_seconds;
  if (IsMeasured()) {
    const double delay_seconds = now_seconds - intended_seconds_;
    counts().send_delay.Add(delay_seconds);
    if (run_.schedule().open_loop() && delay_seconds > kLateSeconds) ++counts().num_late;
  }
  if (stream_ == nullptr) OpenStream();
  layer_ = 0;
  is_cancelling_ = !prefilling && std::uniform_real_distribution<double>()(random_) < run_.load().cancel_share;
  if (!is_cancelling_) return SendLayer();
  // At a random moment until the step would probably be answered, so that every state of a request sees it.
  const double wait_seconds = std::uniform_real_distribution<double>(0, last_step_seconds_)(random_);
  const auto cancel = [stream = stream_] { stream->Cancel(); };
  SessionRun& run = run_;
  SendLayer();
  run.threads().PostAt(run.TimeOf(now_seconds + wait_seconds), cancel);
}

void SessionClient::SendLayer() {
  ++(IsMeasured() ? counts().num_sent : outcome_.num_warm_up);
  is_waiting_ = true;
  // From here on the answer may be there, on another thread.
  if (IsPrefilling()) {
    stream_->Send(run_.requests().Prefill(sequence_, layer_, step_tokens_));
  } else {
    stream_->Send(decode_steps_[layer_]);
  }
}

void SessionClient::OnAnswer(const v1::AttendResponse& response) {
  const double now_seconds = run_.Now();
  is_waiting_ = false;
  run_.CountAnswered();
  if (IsMeasured()) {
    ++counts().num_answered;
    counts().AddReport(response.report());
    outcome_.elapsed_seconds = std::max(outcome_.elapsed_seconds, now_seconds);
  }
  if (++layer_ < run_.requests().geometry().layers) return SendLayer();
  FinishStep(now_seconds);
  // The stream's end goes on from here.
  if (!is_cancelling_) SendStep();
}

void SessionClient::FinishStep(double now_seconds) {
  last_step_seconds_ = now_seconds - intended_seconds_;
  const bool prefilling = IsPrefilling();
  if (IsMeasured()) {
    LoadCounts& counts = this->counts();
    counts.latency.Add(last_step_seconds_);
    counts.query_tokens += step_tokens_;
    counts.key_tokens += plan_->fill_tokens + prefilled_tokens_ + decoded_tokens_ + step_tokens_;
  }
  (prefilling ? prefilled_tokens_ : decoded_tokens_) += step_tokens_;
  if (prefilling && !IsPrefilling() && plan_->intended_seconds >= 0) {
    outcome_.sessions.first_token.Add(now_seconds - plan_->intended_seconds);
  }
}

void SessionClient::EndRound() {
  if (plan_->intended_seconds >= 0) ++outcome_.sessions.num_completed;
  if (run_.schedule().open_loop() || run_.load().recreate) {
    if (const absl::Status status = DropSession(); !status.ok()) return GiveUp(status);
    return Begin();
  }
  if (const absl::Status status = channel_.TruncateSequence(sequence_, plan_->fill_tokens).status(); !status.ok()) {
    return GiveUp(status);
  }
  prefilled_tokens_ = decoded_tokens_ = 0;
  round_tokens_ = plan_->decode_tokens;
  plan_->intended_seconds = run_.Now();
  if (plan_->intended_seconds >= 0) ++outcome_.sessions.num_begun;
  SendStep();
}

void SessionClient::Retire() {
  if (const absl::Status status = DropSession(); !status.ok()) run_.Fail(status);
  retiring_ = true;
  if (stream_ == nullptr) return run_.AddEnded(outcome_);
  stream_->WritesDone();
}

void SessionClient::OnEnd(const absl::Status& status) {
  Post([this, status] { AfterEnd(status); });
}

void SessionClient::AfterEnd(const absl::Status& status) {
  stream_ = nullptr;
  if (retiring_) {
    if (!status.ok()) run_.Fail(status);
    return run_.AddEnded(outcome_);
  }
  if (std::exchange(is_cancelling_, false) && absl::IsCancelled(status)) {
    if (is_waiting_ && IsMeasured()) --counts().num_sent;
    if (IsMeasured()) ++outcome_.sessions.num_cancelled;
    is_waiting_ = false;
    if (const absl::Status dropped = DropSession(); !dropped.ok()) return GiveUp(dropped);
    return Begin();
  }
  const absl::Status failure = status.ok() ? absl::InternalError("the server ended the stream") : status;
  if (is_waiting_) return GiveUp(failure);
  // What is posted already opens another one.
  run_.Fail(failure);
}

// Counts a failure of the request under way, or of a call that the session needs, and goes on with another session.
void SessionClient::GiveUp(const absl::Status& failure) {
  run_.Fail(failure);
  const double now_seconds = run_.Now();
  if (is_waiting_ ? IsMeasured() : now_seconds >= 0) {
    LoadCounts& counts = plan_.has_value() && IsPrefilling() ? outcome_.prefill : outcome_.decode;
    if (!is_waiting_) ++counts.num_sent;
    ++counts.failures_by_code[CodeOf(failure)];
  }
  is_waiting_ = false;
  if (const absl::Status status = DropSession(); !status.ok()) run_.Fail(status);
  const double pause_seconds =
      std::max(absl::ToDoubleSeconds(client::RetryDelay(failure).value_or(absl::ZeroDuration())), kPauseAfterFailureSeconds);
  PostAt(run_.TimeOf(std::min(now_seconds + pause_seconds, run_.load().timing.duration_seconds)), [this] { Begin(); });
}

}  // namespace ridgeline::cli
