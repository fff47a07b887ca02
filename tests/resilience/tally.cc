#include "tests/resilience/tally.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "client/cpp/error.h"

namespace ridgeline::resilience {

void Tally::NoteAnswer(const char* kind, bool is_right, absl::Duration latency) {
  absl::MutexLock lock(&mutex_);
  latencies_.push_back(latency);
  if (!is_right) ++wrong_[kind];
}

void Tally::NoteError(const char* kind, const absl::Status& error, Hurry hurry) {
  absl::MutexLock lock(&mutex_);
  if (absl::IsResourceExhausted(error) && client::RetryDelay(error).has_value()) {
    ++num_refused_;
  } else if (hurry == Hurry::kGivesUp && (absl::IsCancelled(error) || absl::IsDeadlineExceeded(error))) {
    ++num_given_up_;
  } else {
    ++unexpected_[absl::StrCat(kind, ": ", client::ErrorString(error))];
  }
}

std::int64_t Tally::num_answered() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<std::int64_t>(latencies_.size());
}

std::int64_t Tally::num_refused() const {
  absl::MutexLock lock(&mutex_);
  return num_refused_;
}

std::int64_t Tally::num_given_up() const {
  absl::MutexLock lock(&mutex_);
  return num_given_up_;
}

absl::Duration Tally::LatencyQuantile(double share) const {
  absl::MutexLock lock(&mutex_);
  if (latencies_.empty()) return absl::ZeroDuration();
  std::vector<absl::Duration> sorted = latencies_;
  std::sort(sorted.begin(), sorted.end());
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

std::map<std::string, std::int64_t> Tally::wrong() const {
  absl::MutexLock lock(&mutex_);
  return wrong_;
}

std::map<std::string, std::int64_t> Tally::unexpected() const {
  absl::MutexLock lock(&mutex_);
  return unexpected_;
}

}  // namespace ridgeline::resilience
