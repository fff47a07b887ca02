// Puts admitted work on the device's lanes, first come, first served, and sees that each ends in exactly one Finish.
//
//   Submit ──lane free──────────────► lane: Queue ─► OnComplete ─► Release ─► Finish
//      └─────else────► AdmissionQueue ──┘                             │
//                           ▲    ▲──────── next in line ──────────────┤
//                           └───────────── memory ran out: once more ─┘
//
// There is no dispatcher thread: whoever notices that a lane is free and work waits, the submitter or a completion, leases the
// lane under the mutex and queues the work on it outside. Nothing foreign (device, work, callbacks) is called under the mutex.
//
// When memory runs out while other work held some, the work waits at its old place in the line until all lanes are free and
// then runs alone, before anything behind it. If it fails then too, it fails.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/base/mutex.h"
#include "server/device/device.h"
#include "server/engine/admission_queue.h"
#include "server/engine/call.h"
#include "server/engine/load.h"
#include "server/engine/work.h"

namespace ridgeline::engine {

// Thread-safe. Made by make_shared: calls keep it, so that a late Cancel is harmless. Uses device, clock and metrics only until
// Drain has returned.
class Scheduler : public std::enable_shared_from_this<Scheduler> {
 public:
  Scheduler(int max_queued_requests, std::int64_t max_queued_bytes, device::Device& device, const base::Clock& clock,
            base::Histogram queue_wait_seconds);

  // Starts the work, lets it wait, or calls its Finish with the reason why not and returns null. `arrival` is when the request
  // came.
  std::shared_ptr<Call> Submit(std::unique_ptr<Work> work, absl::Time arrival);

  // Refuses new work from now on and waits until what was admitted has finished and every Finish has returned; so never to be
  // called from one. False if `timeout` came first: what is left then gets UNAVAILABLE, and is waited for.
  bool Drain(absl::Duration timeout);

  Load load() const;

  // See Engine::health.
  absl::Status health() const;

 private:
  class Task;
  // How a task's time on a lane ends.
  enum class Ending { kAnswer, kRetry, kUnwanted };
  // What a critical section decided, to be carried out after it.
  struct Decisions {
    std::vector<std::shared_ptr<Task>> starts;   // leased
    std::vector<std::shared_ptr<Task>> expired;  // out of the queue, Finish claimed
  };

  absl::Status Admit(const std::shared_ptr<Task>& task, absl::Time now, Decisions& decisions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CanLease() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Lease(const std::shared_ptr<Task>& task, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillLanes(absl::Time now, Decisions& decisions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Expire(std::shared_ptr<Task> task, Decisions& decisions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The right, and duty, to call Finish: granted once for each task.
  bool ClaimFinish(Task& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration ExpectedWait() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int NumRunning() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Pending() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void CarryOut(const Decisions& decisions) ABSL_LOCKS_EXCLUDED(mutex_);
  void Start(const std::shared_ptr<Task>& task) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLaneComplete(const std::shared_ptr<Task>& task, const absl::Status& lane_status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Adds a retry delay to a final lack of memory.
  Ending EndingOf(Task& task, absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  Decisions ReturnLane(const std::shared_ptr<Task>& task, Ending ending) ABSL_LOCKS_EXCLUDED(mutex_);
  void Cancel(const std::shared_ptr<Task>& task, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<std::shared_ptr<Task>> Unfinished() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls a claimed Finish.
  void Finish(Task& task, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  device::Device& device_;
  const base::Clock& clock_;
  const base::Histogram queue_wait_seconds_;
  const int num_lanes_;

  mutable base::Mutex mutex_;
  base::CondVar became_idle_;
  AdmissionQueue<std::shared_ptr<Task>> queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> free_lanes_ ABSL_GUARDED_BY(mutex_);  // a stack: the lane used last, whose memory is warm, is on top
  std::vector<std::shared_ptr<Task>> running_ ABSL_GUARDED_BY(mutex_);  // [num_lanes_] by lane, null = free
  bool runs_alone_ ABSL_GUARDED_BY(mutex_) = false;                     // what runs wants no company
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  int pending_finishes_ ABSL_GUARDED_BY(mutex_) = 0;  // claimed, not returned
  std::uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t num_leases_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration mean_lease_time_ ABSL_GUARDED_BY(mutex_);  // of recent work
  absl::Time last_progress_ ABSL_GUARDED_BY(mutex_);        // a completion, or the first work after a pause
};

}  // namespace ridgeline::engine
