// A load of sessions over KV caches: many clients, each with a stream of its own, and few threads.
//
//   closed loop   create, fill ─► all are filled ─► the clock starts ─► decode … truncate, decode … ─► delete
//   open loop     wait for the intended time ─► create ─► prefill in chunks ─► decode ─► delete ─► the next session
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cli/load_run.h"
#include "client/cli/load_session_requests.h"
#include "client/cli/load_session_schedule.h"
#include "client/cli/timed_threads.h"
#include "client/cpp/client.h"

namespace ridgeline::cli {

struct SessionLoad {
  LoadTiming timing;
  int num_clients = 1;      // at least 1; open loop: sessions at once
  bool recreate = false;    // closed loop: sessions end and others begin; false: they are truncated to their context, and go on
  double cancel_share = 0;  // of the decode steps: given up at a random moment, and their session with them
  absl::Duration timeout = absl::Minutes(5);  // of a stream, beyond the load's own time
};

// What the clients of one run share: the clock, the threads and the sums. Times are seconds on the run's clock.
class SessionRun {
 public:
  SessionRun(const SessionLoad& load, const SessionRequests& requests, SessionSchedule& schedule, int num_threads);

  const SessionLoad& load() const { return load_; }
  const SessionRequests& requests() const { return requests_; }
  SessionSchedule& schedule() { return schedule_; }
  TimedThreads& threads() { return threads_; }

  void StartClock();
  double Now() const;  // before the clock starts: the warm-up's first moment
  TimedThreads::Clock::time_point TimeOf(double seconds) const;
  // No further request is to be sent.
  bool IsOver() const;
  // How long a stream that is opened now may last.
  absl::Duration StreamTimeout() const;

  void CountAnswered() { num_answered_.fetch_add(1, std::memory_order_relaxed); }
  // Keeps the first failure; one that every other client would share ends the run.
  void Fail(const absl::Status& failure);
  // Ends the run for a reason that no later request would change.
  void End(const absl::Status& reason);

  // One more client has filled its first session, or given up on that; and has ended.
  void AddFilled();
  void AddEnded(const LoadOutcome& outcome);

  LoadState State() const { return {Now(), num_answered_, num_failed_}; }
  int num_filled() const { return num_filled_; }
  absl::Notification& all_filled() { return all_filled_; }
  absl::Notification& all_ended() { return all_ended_; }
  LoadOutcome TakeOutcome();

 private:
  const SessionLoad& load_;
  const SessionRequests& requests_;
  SessionSchedule& schedule_;
  std::atomic<TimedThreads::Clock::time_point> start_;
  std::atomic<bool> has_started_ = false;
  std::atomic<bool> stopped_ = false;
  std::atomic<std::int64_t> num_answered_ = 0;
  std::atomic<std::int64_t> num_failed_ = 0;
  std::atomic<int> num_filled_ = 0;
  std::atomic<int> num_ended_ = 0;
  absl::Notification all_filled_;
  absl::Notification all_ended_;
  absl::Mutex mutex_;
  LoadOutcome outcome_ ABSL_GUARDED_BY(mutex_);
  TimedThreads threads_;  // last: what they run uses the rest
};

struct SessionLoadState {
  std::optional<int> num_filled;  // while contexts are being filled
  LoadState load;
};

// Runs the load: client i on channel i of `channels`, in the cache i of `caches`, both modulo their number. `show` is called by
// this thread a few times a second. Sequences are deleted before it returns. A failure that says that a request is wrong
// (INVALID_ARGUMENT, UNIMPLEMENTED), and any in filling the first contexts, ends the run; after another one a client gives its
// session up, pauses for as long as the server asked, at least 10 ms, and begins another.
LoadOutcome RunSessions(absl::Span<const client::Client> channels, absl::Span<const std::string> caches,
                        const SessionLoad& load, const SessionRequests& requests, SessionSchedule& schedule,
                        absl::FunctionRef<void(const SessionLoadState&)> show);

}  // namespace ridgeline::cli
