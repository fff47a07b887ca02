// Takes down what the daemon does while somebody captures it. Off, it costs whoever asks one relaxed load.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/engine/trace/trace_records.h"

namespace ridgeline::engine {

// Thread-safe.
class TraceRecorder {
 public:
  // To be asked before a record is made.
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }

  // One capture at a time: RESOURCE_EXHAUSTED (reason CAPTURE_RUNNING) while another runs. What began before `now` is not
  // recorded. `max_records` bounds the memory: what comes later is counted alone.
  absl::Status Begin(absl::Time now, std::size_t max_records) ABSL_LOCKS_EXCLUDED(mutex_);
  TraceRecords End(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  // Launches have numbers, by which requests name them.
  std::int64_t NextLaunch() { return num_launches_.fetch_add(1, std::memory_order_relaxed) + 1; }

  // Left aside while nothing is captured.
  void Add(CallRecord call) ABSL_LOCKS_EXCLUDED(mutex_);
  void Add(RequestRecord request) ABSL_LOCKS_EXCLUDED(mutex_);
  void Add(LaunchRecord launch) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Whether a record that began then is wanted and has room.
  bool Admits(absl::Time begin) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<bool> is_on_{false};
  std::atomic<std::int64_t> num_launches_{0};
  base::Mutex mutex_;
  std::size_t max_records_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t num_records_ ABSL_GUARDED_BY(mutex_) = 0;
  TraceRecords records_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ridgeline::engine
