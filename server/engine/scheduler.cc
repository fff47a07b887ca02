#include "server/engine/scheduler.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::engine {
namespace {

constexpr absl::Duration kShortestRetryDelay = absl::Milliseconds(10);
constexpr absl::Duration kLongestRetryDelay = absl::Seconds(30);
constexpr absl::Duration kStuckAfter = absl::Minutes(1);

absl::Status Draining(const char* message) { return base::WithReason(absl::UnavailableError(message), base::kReasonDraining); }

absl::Status Cancelled() { return base::WithReason(absl::CancelledError("the caller cancelled"), base::kReasonCancelled); }

absl::Status DeadlineExceeded() {
  return base::WithReason(absl::DeadlineExceededError("the deadline came before a lane was free"),
                          base::kReasonDeadlineExceeded);
}

bool IsOutOfMemory(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && base::ErrorReason(status) == base::kReasonOutOfMemory;
}

}  // namespace

class Scheduler::Task final : public Call, public std::enable_shared_from_this<Task> {
 public:
  Task(std::shared_ptr<Scheduler> scheduler, std::unique_ptr<Work> work_to_do, absl::Time arrival_time)
      : work(std::move(work_to_do)),
        arrival(arrival_time),
        bytes(work->device_bytes()),
        deadline(work->deadline()),
        scheduler_(std::move(scheduler)) {}

  void Cancel() override { scheduler_->Cancel(shared_from_this(), Cancelled()); }

  const std::unique_ptr<Work> work;
  const absl::Time arrival;
  const std::int64_t bytes;
  const absl::Time deadline;
  const device::CancelToken cancel = std::make_shared<std::atomic<bool>>(false);

  // Written by whoever starts the task on its lane, read at completion.
  absl::Status queue_status;

  // Guarded by the scheduler's mutex, but constant during a lease: all that Start reads.
  int lane = -1;
  std::uint64_t lease = 0;   // how many leases there had been
  bool had_company = false;  // when the lease began
  absl::Time lease_begin;

  // Guarded by the scheduler's mutex.
  std::uint64_t ticket = 0;
  bool must_run_alone = false;  // memory ran out once
  bool finish_claimed = false;

 private:
  const std::shared_ptr<Scheduler> scheduler_;
};

Scheduler::Scheduler(int max_queued_requests, std::int64_t max_queued_bytes, device::Device& device, const base::Clock& clock,
                     base::Histogram queue_wait_seconds)
    : device_(device),
      clock_(clock),
      queue_wait_seconds_(queue_wait_seconds),
      num_lanes_(device.num_lanes()),
      queue_(max_queued_requests, max_queued_bytes),
      running_(num_lanes_) {
  for (int lane = num_lanes_ - 1; lane >= 0; --lane) free_lanes_.push_back(lane);
}

std::shared_ptr<Call> Scheduler::Submit(std::unique_ptr<Work> work, absl::Time arrival) {
  const auto task = std::make_shared<Task>(shared_from_this(), std::move(work), arrival);
  absl::Status status = device_.health();
  Decisions decisions;
  if (status.ok()) {
    const absl::Time now = clock_.Now();
    base::MutexLock lock(&mutex_);
    status = Admit(task, now, decisions);
    FillLanes(now, decisions);
  }
  CarryOut(decisions);
  if (status.ok()) return task;
  task->work->Finish(status);
  return nullptr;
}

absl::Status Scheduler::Admit(const std::shared_ptr<Task>& task, absl::Time now, Decisions& decisions) {
  if (draining_) return Draining("the server is draining and takes no new work");
  if (task->deadline <= now) return DeadlineExceeded();
  // Who waits in vain makes room. Swept only when room is short: otherwise each is met when its turn comes.
  if (queue_.full()) {
    for (std::shared_ptr<Task>& late : queue_.TakeExpired(now)) Expire(std::move(late), decisions);
  }
  const bool must_wait = !queue_.empty() || !CanLease();
  RIDGELINE_RETURN_IF_ERROR(queue_.Admit(task->bytes, must_wait, ExpectedWait()));
  if (!Pending()) last_progress_ = now;
  task->ticket = next_ticket_++;
  queue_.Push(task->ticket, task->deadline, task);
  return absl::OkStatus();
}

// ---- Lanes ------------------------------------------------------------------------------------------------------------------

bool Scheduler::CanLease() const { return !free_lanes_.empty() && !runs_alone_; }

void Scheduler::Lease(const std::shared_ptr<Task>& task, absl::Time now) {
  task->had_company = NumRunning() > 0;
  task->lane = free_lanes_.back();
  task->lease = ++num_leases_;
  task->lease_begin = now;
  free_lanes_.pop_back();
  running_[task->lane] = task;
  runs_alone_ = task->must_run_alone;
}

void Scheduler::FillLanes(absl::Time now, Decisions& decisions) {
  while (!queue_.empty() && CanLease()) {
    if (queue_.Front()->deadline <= now) {
      Expire(queue_.Pop(), decisions);
    } else if (queue_.Front()->must_run_alone && NumRunning() > 0) {
      return;
    } else {
      decisions.starts.push_back(queue_.Pop());
      Lease(decisions.starts.back(), now);
    }
  }
}

void Scheduler::Expire(std::shared_ptr<Task> task, Decisions& decisions) {
  queue_.Discharge(task->bytes);
  if (ClaimFinish(*task)) decisions.expired.push_back(std::move(task));
}

void Scheduler::CarryOut(const Decisions& decisions) {
  for (const std::shared_ptr<Task>& task : decisions.starts) Start(task);
  for (const std::shared_ptr<Task>& task : decisions.expired) Finish(*task, DeadlineExceeded());
}

void Scheduler::Start(const std::shared_ptr<Task>& task) {
  device::Lane& lane = device_.lane(task->lane);
  const absl::Duration queue_time = std::max(task->lease_begin - task->arrival, absl::ZeroDuration());
  queue_wait_seconds_.Observe(absl::ToDoubleSeconds(queue_time));
  task->queue_status = task->cancel->load() ? Cancelled() : task->work->Queue(lane, task->cancel, queue_time);
  // After a failure too: what had been queued before it still runs, and uses the work's memory.
  lane.OnComplete([self = shared_from_this(), task](const absl::Status& status) { self->OnLaneComplete(task, status); });
}

void Scheduler::OnLaneComplete(const std::shared_ptr<Task>& task, const absl::Status& lane_status) {
  absl::Status status = task->queue_status.ok() ? lane_status : task->queue_status;
  const Ending ending = EndingOf(*task, status);
  // Before the lane goes on: its next tenant may get the same memory.
  task->work->Release(ending == Ending::kAnswer ? status : Cancelled());
  CarryOut(ReturnLane(task, ending));
  if (ending == Ending::kAnswer) Finish(*task, status);
}

Scheduler::Ending Scheduler::EndingOf(Task& task, absl::Status& status) {
  base::MutexLock lock(&mutex_);
  if (task.finish_claimed) return Ending::kUnwanted;
  const bool was_alone = !task.had_company && task.lease == num_leases_;
  if (IsOutOfMemory(status)) {
    // Once queued, the work has let go of its inputs.
    if (!task.queue_status.ok() && !was_alone && !task.must_run_alone) return Ending::kRetry;
    // Answers that are still being sent hold memory too: a later try may do.
    status = base::WithRetryDelay(std::move(status), ExpectedWait());
  }
  ClaimFinish(task);
  return Ending::kAnswer;
}

Scheduler::Decisions Scheduler::ReturnLane(const std::shared_ptr<Task>& task, Ending ending) {
  const absl::Time now = clock_.Now();
  Decisions decisions;
  base::MutexLock lock(&mutex_);
  running_[task->lane] = nullptr;
  free_lanes_.push_back(task->lane);
  runs_alone_ = false;
  last_progress_ = now;
  mean_lease_time_ += (now - task->lease_begin - mean_lease_time_) / 8;
  if (ending == Ending::kRetry && !task->finish_claimed) {
    task->must_run_alone = true;
    queue_.Push(task->ticket, task->deadline, task);
  } else {
    queue_.Discharge(task->bytes);
  }
  FillLanes(now, decisions);
  if (Idle()) became_idle_.SignalAll();
  return decisions;
}

// ---- Endings ----------------------------------------------------------------------------------------------------------------

bool Scheduler::ClaimFinish(Task& task) {
  if (task.finish_claimed) return false;
  task.finish_claimed = true;
  ++pending_finishes_;
  return true;
}

void Scheduler::Finish(Task& task, const absl::Status& status) {
  task.work->Finish(status);
  base::MutexLock lock(&mutex_);
  --pending_finishes_;
  if (Idle()) became_idle_.SignalAll();
}

void Scheduler::Cancel(const std::shared_ptr<Task>& task, const absl::Status& status) {
  Decisions decisions;
  {
    base::MutexLock lock(&mutex_);
    if (!ClaimFinish(*task)) return;
    task->cancel->store(true);
    if (queue_.Remove(task->ticket)) {
      queue_.Discharge(task->bytes);
      // It may have been what the others waited for.
      FillLanes(clock_.Now(), decisions);
    }
  }
  CarryOut(decisions);
  Finish(*task, status);
}

bool Scheduler::Drain(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  {
    base::MutexLock lock(&mutex_);
    draining_ = true;
    while (!Idle() && became_idle_.WaitWithTimeout(&mutex_, end - absl::Now())) {
    }
    if (Idle()) return true;
  }
  for (const std::shared_ptr<Task>& task : Unfinished()) Cancel(task, Draining("the server stopped before the work was done"));
  base::MutexLock lock(&mutex_);
  while (!Idle()) became_idle_.Wait(&mutex_);
  return false;
}

std::vector<std::shared_ptr<Scheduler::Task>> Scheduler::Unfinished() const {
  base::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Task>> tasks = queue_.Items();
  std::copy_if(running_.begin(), running_.end(), std::back_inserter(tasks), [](const auto& task) { return task != nullptr; });
  return tasks;
}

// ---- State ------------------------------------------------------------------------------------------------------------------

absl::Duration Scheduler::ExpectedWait() const {
  const absl::Duration wait = mean_lease_time_ * (queue_.size() + 1) / num_lanes_;
  return std::clamp(wait, kShortestRetryDelay, kLongestRetryDelay);
}

int Scheduler::NumRunning() const { return num_lanes_ - static_cast<int>(free_lanes_.size()); }

bool Scheduler::Pending() const { return !queue_.empty() || NumRunning() > 0; }

bool Scheduler::Idle() const { return !Pending() && pending_finishes_ == 0; }

Load Scheduler::load() const {
  base::MutexLock lock(&mutex_);
  return {.queued_requests = queue_.size(),
          .running_requests = NumRunning(),
          .busy_lanes = NumRunning(),
          .admitted_bytes = queue_.admitted_bytes(),
          .draining = draining_};
}

absl::Status Scheduler::health() const {
  RIDGELINE_RETURN_IF_ERROR(device_.health());
  const absl::Time now = clock_.Now();
  base::MutexLock lock(&mutex_);
  const absl::Duration silence = now - last_progress_;
  if (!Pending() || silence <= kStuckAfter) return absl::OkStatus();
  return base::WithReason(
      absl::UnavailableError(absl::StrCat("work is pending and none has completed for ", absl::FormatDuration(silence))),
      base::kReasonDeviceFailed);
}

}  // namespace ridgeline::engine
