// What became of the calls of a crowd.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace ridgeline::resilience {

// Thread-safe.
class Tally {
 public:
  enum class Hurry { kNone, kGivesUp };  // whether the caller has a deadline that it may miss, or may cancel

  // An answer came to a call of this kind, after `latency`.
  void NoteAnswer(const char* kind, bool is_right, absl::Duration latency) ABSL_LOCKS_EXCLUDED(mutex_);
  // A call failed: because the daemon is full, which has to say when to come back, or because the caller gave up. Anything else
  // is unexpected.
  void NoteError(const char* kind, const absl::Status& error, Hurry hurry) ABSL_LOCKS_EXCLUDED(mutex_);

  std::int64_t num_answered() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::int64_t num_refused() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::int64_t num_given_up() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the answers. `share` is in [0, 1].
  absl::Duration LatencyQuantile(double share) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers by the kind of their calls.
  std::map<std::string, std::int64_t> wrong() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Errors after their calls' kind, and how often each came.
  std::map<std::string, std::int64_t> unexpected() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  std::int64_t num_refused_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t num_given_up_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<absl::Duration> latencies_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::int64_t> wrong_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::int64_t> unexpected_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ridgeline::resilience
