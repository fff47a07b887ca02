#include "server/engine/measure/sampling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/base/status_macros.h"
#include "server/engine/measure/statistics.h"

namespace ridgeline::engine::measure {
namespace {

// Long beside what two events and a clock's reading cost.
constexpr absl::Duration kSampleTime = absl::Microseconds(200);

// The clocks' state and the samples' agreement are looked at so often: reading a GPU's state takes milliseconds.
constexpr absl::Duration kRoundTime = absl::Milliseconds(20);

// Samples enough for any median; beyond them memory and sorting would grow without use.
constexpr std::size_t kMostSamples = 100'000;

// Runs until `warm_up` is over; how often one sample repeats the work, by what the last run took.
absl::StatusOr<std::int64_t> WarmUp(Trial& trial, absl::Duration run_time, absl::Duration warm_up, const base::Clock& clock) {
  const absl::Time end = clock.Now() + (warm_up - run_time);
  while (clock.Now() < end) {
    RIDGELINE_RETURN_IF_ERROR(trial.CheckInterest());
    RIDGELINE_ASSIGN_OR_RETURN(run_time, trial.TakeSample(1));
  }
  if (run_time <= absl::ZeroDuration()) return trial.max_repetitions();
  const double repetitions = std::ceil(absl::FDivDuration(kSampleTime, run_time));
  return static_cast<std::int64_t>(std::clamp(repetitions, 1.0, static_cast<double>(trial.max_repetitions())));
}

absl::StatusOr<std::vector<double>> TakeRound(Trial& trial, std::int64_t repetitions, absl::Time end,
                                              const base::Clock& clock) {
  std::vector<double> round;
  const absl::Time round_end = std::min(end, clock.Now() + kRoundTime);
  do {
    RIDGELINE_RETURN_IF_ERROR(trial.CheckInterest());
    RIDGELINE_ASSIGN_OR_RETURN(const absl::Duration elapsed, trial.TakeSample(repetitions));
    round.push_back(absl::ToDoubleSeconds(elapsed) / static_cast<double>(repetitions));
  } while (clock.Now() < round_end && round.size() < kMostSamples);
  return round;
}

void Append(const std::vector<double>& round, std::vector<double>& samples) {
  samples.insert(samples.end(), round.begin(), round.end());
}

}  // namespace

absl::StatusOr<Samples> TakeSamples(Trial& trial, absl::Duration first_run, const Limits& limits, const base::Clock& clock) {
  Samples samples;
  RIDGELINE_ASSIGN_OR_RETURN(samples.repetitions, WarmUp(trial, first_run, limits.warm_up, clock));
  std::vector<double> throttled;
  const absl::Time begin = clock.Now();
  const absl::Time end = begin + limits.max_time;
  do {
    RIDGELINE_ASSIGN_OR_RETURN(const std::vector<double> round, TakeRound(trial, samples.repetitions, end, clock));
    Append(round, trial.IsThrottled() ? throttled : samples.seconds);
    const bool long_enough = clock.Now() - begin >= limits.min_time;
    if (long_enough && !samples.seconds.empty() && Summarise(samples.seconds).relative_noise <= limits.max_relative_noise) {
      samples.stop_reason = StopReason::kQuiet;
      break;
    }
  } while (clock.Now() < end && samples.seconds.size() + throttled.size() < kMostSamples);
  samples.throttled = samples.seconds.empty();
  if (samples.throttled) {
    samples.seconds = std::move(throttled);
  } else {
    samples.discarded = static_cast<std::int64_t>(throttled.size());
  }
  return samples;
}

}  // namespace ridgeline::engine::measure
