#include "client/cli/load_schedule.h"

#include <utility>

namespace ridgeline::cli {

LoadSchedule::LoadSchedule(const LoadTiming& timing, WorkMix mix, std::uint64_t seed)
    : timing_(timing),
      mix_(std::move(mix)),
      work_random_(seed),
      arrival_random_(seed + 1),
      arrivals_(timing.rate_per_second.value_or(1), -timing.warm_up_seconds),
      next_arrival_seconds_(arrivals_.Next(arrival_random_)) {}

std::optional<double> LoadSchedule::NextIntended(double now_seconds) {
  if (!timing_.rate_per_second.has_value()) {
    return now_seconds < timing_.duration_seconds ? std::optional(now_seconds) : std::nullopt;
  }
  // A backlog of the warm-up would keep a server that is too slow from ever being measured.
  while (now_seconds >= 0 && next_arrival_seconds_ < 0) next_arrival_seconds_ = arrivals_.Next(arrival_random_);
  const bool over = next_arrival_seconds_ >= timing_.duration_seconds;
  const bool too_late = now_seconds >= timing_.duration_seconds + timing_.drain_seconds;
  if (over || too_late) return std::nullopt;
  return std::exchange(next_arrival_seconds_, arrivals_.Next(arrival_random_));
}

std::optional<LoadSchedule::Item> LoadSchedule::Next(double now_seconds) {
  absl::MutexLock lock(&mutex_);
  const std::optional<double> intended_seconds = NextIntended(now_seconds);
  if (!intended_seconds.has_value()) return std::nullopt;
  return Item{*intended_seconds, mix_.Draw(work_random_)};
}

std::int64_t LoadSchedule::CountUnsent() {
  absl::MutexLock lock(&mutex_);
  if (!timing_.rate_per_second.has_value()) return 0;
  std::int64_t num_unsent = 0;
  for (; next_arrival_seconds_ < timing_.duration_seconds; next_arrival_seconds_ = arrivals_.Next(arrival_random_)) {
    if (next_arrival_seconds_ >= 0) ++num_unsent;
  }
  return num_unsent;
}

}  // namespace ridgeline::cli
