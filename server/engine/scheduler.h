// Puts admitted work on the device's lanes, several at a time where they can share a launch, and sees that each ends in exactly
// one Finish.
//
//   Submit ─► BatchFormer ──lane free──► Begin ─► Launch on the lane: Queue ─► OnComplete ─► Release ─► Finish
//                ▲    ▲                    │                                      │             │
//                │    └──── not now ───────┘                                      │             │
//                │    ┌──────────────────────── next to leave ◄───────────────────┘             │
//                └────┴──────────────────────── memory ran out: once more ◄─────────────────────┘
//
// There is no dispatcher thread: whoever notices that a lane is free and work may leave, the submitter or a completion, leases
// the lane under the mutex and queues the launch on it outside. Nothing foreign (device, work, callbacks) is called under the
// mutex.
//
// A launch is promised its memory before it begins; what other launches allocate then leaves that alone. One work that cannot
// be promised it while others run has run out of memory.
//
// When memory runs out for a launch of several works, it falls apart, and each leaves once more by itself. When it runs out for
// one work beside other launches, that waits until all lanes are free and then runs alone, before everything in the line. If it
// fails then too, it fails.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/device/device.h"
#include "server/engine/access_order.h"
#include "server/engine/admission.h"
#include "server/engine/answer_threads.h"
#include "server/engine/batch_former.h"
#include "server/engine/call.h"
#include "server/engine/flight.h"
#include "server/engine/load.h"
#include "server/engine/scheduler_metrics.h"
#include "server/engine/task.h"
#include "server/engine/trace/trace_recorder.h"
#include "server/engine/work.h"

namespace ridgeline::engine {

struct SchedulerOptions {
  AdmissionLimits admission = {};
  BatchLimits batches;
  bool serving_waits = true;  // while exclusive work waits or runs; false: new work is refused
};

// Thread-safe. Made by make_shared: calls keep it, so that a late Cancel is harmless. Uses device, clock, metrics and threads
// only until Drain has returned.
class Scheduler : public std::enable_shared_from_this<Scheduler> {
 public:
  Scheduler(const SchedulerOptions& options, device::Device& device, const base::Clock& clock, const SchedulerMetrics& metrics,
            AnswerThreads& answer_threads, TraceRecorder& trace);

  // Starts the work, lets it wait, or calls its Finish with the reason why not and returns null. `arrival` is when the request
  // came.
  std::shared_ptr<Call> Submit(std::unique_ptr<Work> work, WorkTraits traits, absl::Time arrival);

  // Refuses new work from now on and waits until what was admitted has finished and every Finish has returned; so never to be
  // called from one. False if `timeout` came first: what is left then gets UNAVAILABLE, and is waited for.
  bool Drain(absl::Duration timeout);

  Load load() const;

  // Work that takes long lives: see health().
  void NoteProgress();

  // See Engine::health.
  absl::Status health() const;

 private:
  class SubmittedCall;
  using Tasks = BatchFormer::Tasks;

  // A task that is out of the scheduler's hands but for its work's last calls: Drop, and Finish if there is an answer.
  struct End {
    std::shared_ptr<Task> task;
    std::optional<absl::Status> answer;
  };
  // What a critical section decided, to be carried out after it.
  struct Decisions {
    std::list<std::shared_ptr<Flight>> starts;  // leased
    std::vector<End> ends;
  };

  absl::Status Admit(const std::shared_ptr<Task>& task, absl::Time now, Decisions& decisions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CanLease() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillLanes(absl::Time now, Decisions& decisions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The task that wants no company, if it may leave now, or a batch from the line; empty: none may.
  Tasks NextToLeave(absl::Time now, Decisions& decisions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Flight> Lease(Tasks tasks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReturnLease(const Flight& flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveWaiting(const Task& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Into the line again; ends it if nobody asks for it any more.
  void PutBack(const std::shared_ptr<Task>& task, Decisions& decisions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It neither waits nor runs any more.
  void Retire(const Task& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Retires it; answers unless somebody has or will.
  void EndWith(const std::shared_ptr<Task>& task, const absl::Status& status, Decisions& decisions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the right, and duty, to call Finish: there is one for each task.
  void ClaimFinish(Task& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration ExpectedWait() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int NumWaiting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int NumBusyLanes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Pending() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // For which work has been pending and none has completed.
  absl::Duration Silence(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How a task's part in a launch ends that ended with `status`.
  Ending EndingOf(Task& task, const Flight& flight, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void CarryOut(Decisions decisions) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns what else is to be done.
  Decisions Start(const std::shared_ptr<Flight>& flight) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes those out of the flight whose turn it is not; what is left goes. `turns` are the flight's tasks'.
  Decisions Settle(Flight& flight, absl::Span<const absl::StatusOr<Turn>> turns) ABSL_LOCKS_EXCLUDED(mutex_);
  void Depart(const std::shared_ptr<Flight>& flight) ABSL_LOCKS_EXCLUDED(mutex_);
  // Promises the flight's memory to it before it begins, so that others can't take it while it runs.
  absl::Status ReserveMemory(const Flight& flight) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLaneComplete(const std::shared_ptr<Flight>& flight, const absl::Status& lane_status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of a launch that left while a capture ran: what ran on its lane, and its members' ways. Before the launch is let go of.
  void Trace(const Flight& flight, absl::Span<const Ending> endings, const absl::Status& status);
  // Adds a retry delay to a final lack of memory.
  std::vector<Ending> EndingsOf(const Flight& flight, absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  Decisions ReturnLane(const Flight& flight, absl::Span<const Ending> endings) ABSL_LOCKS_EXCLUDED(mutex_);
  void Cancel(const std::shared_ptr<Task>& task, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  Tasks Unfinished() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Finishes the tasks, on several threads.
  void PostAnswers(const Tasks& answered, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls a claimed Finish.
  void Finish(Task& task, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void NoteEnd() ABSL_LOCKS_EXCLUDED(mutex_);

  device::Device& device_;
  const base::Clock& clock_;
  const SchedulerMetrics metrics_;
  AnswerThreads& answer_threads_;
  TraceRecorder& trace_;
  const int num_lanes_;
  const bool serving_waits_;

  mutable base::Mutex mutex_;
  base::CondVar became_idle_;
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  AccessOrder access_order_ ABSL_GUARDED_BY(mutex_);
  BatchFormer former_ ABSL_GUARDED_BY(mutex_);
  std::list<std::shared_ptr<Task>> alone_ ABSL_GUARDED_BY(mutex_);  // wait until all lanes are free
  std::vector<int> free_lanes_ ABSL_GUARDED_BY(mutex_);  // a stack: the lane used last, whose memory is warm, is on top
  std::vector<std::shared_ptr<Flight>> running_ ABSL_GUARDED_BY(mutex_);  // [num_lanes_] by lane, null = free
  bool runs_alone_ ABSL_GUARDED_BY(mutex_) = false;                       // what runs wants no company
  int num_exclusive_ ABSL_GUARDED_BY(mutex_) = 0;                         // admitted and not retired
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  int pending_ends_ ABSL_GUARDED_BY(mutex_) = 0;  // decided, not carried out
  std::uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t num_leases_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration mean_work_time_ ABSL_GUARDED_BY(mutex_);  // a recent launch's on its lane, divided by its works
  absl::Time last_progress_ ABSL_GUARDED_BY(mutex_);       // a completion, or the first work after a pause
};

}  // namespace ridgeline::engine
