#include "client/cli/load_session_schedule.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ridgeline::cli {
namespace {

constexpr int kDrawsForTheLongest = 4096;

}  // namespace

SessionSchedule::SessionSchedule(const LoadTiming& timing, SessionMix mix, int num_clients, std::uint64_t seed)
    : timing_(timing),
      mix_(std::move(mix)),
      num_decoders_(static_cast<int>(std::lround(mix_.decode_share * num_clients))),
      context_(mix_.context),
      decode_tokens_(mix_.decode_tokens),
      length_random_(seed),
      arrival_random_(seed + 1),
      arrivals_(timing.rate_per_second.value_or(1), -timing.warm_up_seconds),
      has_begun_(num_clients) {
  absl::MutexLock lock(&mutex_);
  if (open_loop()) next_ = DrawOpen();
}

std::int64_t SessionSchedule::LongestSession() const {
  std::int64_t longest = 0;
  for (const TracedSession& session : mix_.trace) {
    longest = std::max(longest, session.prefill_tokens + session.decode_tokens);
  }
  if (!mix_.trace.empty()) return longest;
  std::mt19937_64 random(0);
  LengthDistribution context = mix_.context;
  LengthDistribution decode_tokens = mix_.decode_tokens;
  for (int i = 0; i < kDrawsForTheLongest; ++i) {
    longest = std::max(longest, context.Draw(random) + decode_tokens.Draw(random));
  }
  return longest;
}

SessionPlan SessionSchedule::DrawClosed(int client_idx, double now_seconds) {
  SessionPlan plan;
  plan.intended_seconds = now_seconds;
  if (client_idx >= num_decoders_) {
    plan.prefill_tokens = context_.Draw(length_random_);
    return plan;
  }
  plan.fill_tokens = context_.Draw(length_random_);
  plan.decode_tokens = plan.first_decode_tokens = decode_tokens_.Draw(length_random_);
  if (!has_begun_[client_idx]) {
    plan.first_decode_tokens = std::uniform_int_distribution<std::int64_t>(1, plan.decode_tokens)(length_random_);
  }
  has_begun_[client_idx] = true;
  return plan;
}

std::optional<SessionPlan> SessionSchedule::DrawOpen() {
  SessionPlan plan;
  if (mix_.trace.empty()) {
    plan.intended_seconds = arrivals_.Next(arrival_random_);
    plan.prefill_tokens = context_.Draw(length_random_);
    plan.decode_tokens = decode_tokens_.Draw(length_random_);
  } else {
    if (next_traced_ == mix_.trace.size()) return std::nullopt;
    const TracedSession& session = mix_.trace[next_traced_++];
    plan.intended_seconds = session.arrival_seconds - timing_.warm_up_seconds;
    plan.prefill_tokens = session.prefill_tokens;
    plan.decode_tokens = session.decode_tokens;
  }
  plan.first_decode_tokens = plan.decode_tokens;
  return plan.intended_seconds < timing_.duration_seconds ? std::optional(plan) : std::nullopt;
}

std::optional<SessionPlan> SessionSchedule::Next(int client_idx, double now_seconds) {
  absl::MutexLock lock(&mutex_);
  if (!open_loop()) {
    if (now_seconds >= timing_.duration_seconds) return std::nullopt;
    return DrawClosed(client_idx, now_seconds);
  }
  // A backlog of the warm-up would keep a server that is too slow from ever being measured.
  while (next_.has_value() && now_seconds >= 0 && next_->intended_seconds < 0) next_ = DrawOpen();
  if (!next_.has_value() || now_seconds >= timing_.duration_seconds + timing_.drain_seconds) return std::nullopt;
  return std::exchange(next_, DrawOpen());
}

std::int64_t SessionSchedule::CountUnsent() {
  absl::MutexLock lock(&mutex_);
  std::int64_t num_unsent = 0;
  for (; next_.has_value(); next_ = DrawOpen()) {
    if (next_->intended_seconds >= 0) ++num_unsent;
  }
  return num_unsent;
}

}  // namespace ridgeline::cli
