#include "server/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/engine/scheduler_errors.h"

namespace ridgeline::engine {
namespace {

constexpr absl::Duration kShortestRetryDelay = absl::Milliseconds(10);
constexpr absl::Duration kLongestRetryDelay = absl::Seconds(30);
constexpr absl::Duration kStuckAfter = absl::Minutes(1);
// A busy daemon is not a dead one: a launch may take so many times what its work takes at the device's peaks. On a CPU,
// standard attention on all lanes at once, with other processes beside it, takes about 20 times as long.
constexpr int kSlowest = 50;

}  // namespace

class Scheduler::SubmittedCall final : public Call {
 public:
  SubmittedCall(std::shared_ptr<Scheduler> scheduler, std::weak_ptr<Task> task)
      : scheduler_(std::move(scheduler)), task_(std::move(task)) {}

  void Cancel() override {
    if (const std::shared_ptr<Task> task = task_.lock()) scheduler_->Cancel(task, Cancelled());
  }

 private:
  const std::shared_ptr<Scheduler> scheduler_;
  const std::weak_ptr<Task> task_;  // what has ended holds nothing, whoever keeps the call
};

Scheduler::Scheduler(const SchedulerOptions& options, device::Device& device, const base::Clock& clock,
                     const SchedulerMetrics& metrics, AnswerThreads& answer_threads, TraceRecorder& trace)
    : device_(device),
      clock_(clock),
      metrics_(metrics),
      answer_threads_(answer_threads),
      trace_(trace),
      num_lanes_(device.num_lanes()),
      serving_waits_(options.serving_waits),
      admission_(options.admission),
      former_(options.batches, num_lanes_),
      running_(num_lanes_) {
  for (int lane = num_lanes_ - 1; lane >= 0; --lane) free_lanes_.push_back(lane);
}

std::shared_ptr<Call> Scheduler::Submit(std::unique_ptr<Work> work, WorkTraits traits, absl::Time arrival) {
  const auto task = std::make_shared<Task>(std::move(work), std::move(traits), arrival);
  auto call = std::make_shared<SubmittedCall>(shared_from_this(), task);
  absl::Status status = device_.health();
  Decisions decisions;
  if (status.ok()) {
    const absl::Time now = clock_.Now();
    base::MutexLock lock(&mutex_);
    status = Admit(task, now, decisions);
    // While the steps of other clients collect, most submissions end here: nobody is kept from the mutex by a look at the line.
    if (!status.ok() || task->runs_alone || former_.MayLetOneLeave(*task)) FillLanes(now, decisions);
  }
  CarryOut(std::move(decisions));
  if (status.ok()) return call;
  task->work->Drop();
  task->work->Finish(status);
  return nullptr;
}

absl::Status Scheduler::Admit(const std::shared_ptr<Task>& task, absl::Time now, Decisions& decisions) {
  if (draining_) return DrainingTakesNoWork();
  if (task->traits.deadline <= now) return DeadlineExceeded();
  if (num_exclusive_ > 0 && !serving_waits_) return DeviceIsTaken();
  // Who waits in vain makes room. Swept only when room is short: otherwise that is done when a lane is free.
  if (admission_.IsFull(NumWaiting())) {
    for (const std::shared_ptr<Task>& late : former_.TakeExpired(now)) EndWith(late, DeadlineExceeded(), decisions);
  }
  const bool must_wait = NumWaiting() > 0 || !CanLease();
  RIDGELINE_RETURN_IF_ERROR(admission_.Admit(task->traits, must_wait, NumWaiting(), ExpectedWait()));
  if (!Pending()) last_progress_ = now;
  access_order_.Enter(*task);
  if (task->traits.exclusive) {
    ++num_exclusive_;
    task->runs_alone = true;
    alone_.push_back(task);
  } else {
    former_.Push(task, next_ticket_++);
  }
  return absl::OkStatus();
}

// ---- The line ---------------------------------------------------------------------------------------------------------------

void Scheduler::PutBack(const std::shared_ptr<Task>& task, Decisions& decisions) {
  if (task->finish_claimed) {
    EndWith(task, Cancelled(), decisions);
  } else if (task->runs_alone) {
    alone_.push_back(task);
  } else {
    former_.PushBack(task);
  }
}

void Scheduler::RemoveWaiting(const Task& task) {
  if (former_.Remove(task)) return;
  alone_.remove_if([&](const std::shared_ptr<Task>& waiting) { return waiting.get() == &task; });
}

void Scheduler::Retire(const Task& task) {
  admission_.Discharge(task.traits);
  if (task.traits.exclusive) --num_exclusive_;
  access_order_.Leave(task);
}

void Scheduler::EndWith(const std::shared_ptr<Task>& task, const absl::Status& status, Decisions& decisions) {
  Retire(*task);
  ++pending_ends_;
  const bool is_answered = std::exchange(task->finish_claimed, true);
  decisions.ends.push_back({task, is_answered ? std::nullopt : std::optional(status)});
}

// ---- Endings ----------------------------------------------------------------------------------------------------------------

void Scheduler::ClaimFinish(Task& task) {
  task.finish_claimed = true;
  ++pending_ends_;
}

void Scheduler::Finish(Task& task, const absl::Status& status) {
  task.work->Finish(status);
  NoteEnd();
}

void Scheduler::NoteEnd() {
  base::MutexLock lock(&mutex_);
  --pending_ends_;
  if (Idle()) became_idle_.SignalAll();
}

void Scheduler::Cancel(const std::shared_ptr<Task>& task, const absl::Status& status) {
  Decisions decisions;
  bool was_running = false;
  {
    base::MutexLock lock(&mutex_);
    if (task->finish_claimed) return;
    was_running = task->flight != nullptr;
    if (was_running) {
      ClaimFinish(*task);
      const Tasks& company = task->flight->tasks;
      const bool nobody_asks =
          std::all_of(company.begin(), company.end(), [](const auto& each) { return each->finish_claimed; });
      if (nobody_asks) task->flight->cancel->store(true);
    } else {
      RemoveWaiting(*task);
      EndWith(task, status, decisions);
      // It may have been what the others waited for.
      FillLanes(clock_.Now(), decisions);
    }
  }
  CarryOut(std::move(decisions));
  if (was_running) Finish(*task, status);
}

bool Scheduler::Drain(absl::Duration timeout) {
  const absl::Time end = base::Clock::Real().Now() + timeout;
  {
    base::MutexLock lock(&mutex_);
    draining_ = true;
    while (!Idle() && became_idle_.WaitWithTimeout(&mutex_, end - base::Clock::Real().Now())) {
    }
    if (Idle()) return true;
  }
  for (const std::shared_ptr<Task>& task : Unfinished()) Cancel(task, Draining("the server stopped before the work was done"));
  base::MutexLock lock(&mutex_);
  while (!Idle()) became_idle_.Wait(&mutex_);
  return false;
}

Scheduler::Tasks Scheduler::Unfinished() const {
  base::MutexLock lock(&mutex_);
  Tasks tasks = former_.tasks();
  tasks.insert(tasks.end(), alone_.begin(), alone_.end());
  for (const std::shared_ptr<Flight>& flight : running_) {
    if (flight != nullptr) tasks.insert(tasks.end(), flight->tasks.begin(), flight->tasks.end());
  }
  return tasks;
}

// ---- State ------------------------------------------------------------------------------------------------------------------

absl::Duration Scheduler::ExpectedWait() const {
  const absl::Duration wait = mean_work_time_ * (NumWaiting() + 1) / num_lanes_;
  return std::clamp(wait, kShortestRetryDelay, kLongestRetryDelay);
}

int Scheduler::NumWaiting() const { return former_.size() + static_cast<int>(alone_.size()); }

int Scheduler::NumBusyLanes() const { return num_lanes_ - static_cast<int>(free_lanes_.size()); }

bool Scheduler::Pending() const { return NumWaiting() > 0 || NumBusyLanes() > 0; }

bool Scheduler::Idle() const { return !Pending() && pending_ends_ == 0; }

absl::Duration Scheduler::Silence(absl::Time now) const {
  return Pending() ? std::max(now - last_progress_, absl::ZeroDuration()) : absl::ZeroDuration();
}

Load Scheduler::load() const {
  const absl::Time now = clock_.Now();
  base::MutexLock lock(&mutex_);
  Load load{.queued_requests = NumWaiting(),
            .lanes = num_lanes_,
            .busy_lanes = NumBusyLanes(),
            .admitted_bytes = admission_.admitted_bytes(),
            .silence = Silence(now),
            .quota_refusals = admission_.refusals(),
            .draining = draining_};
  for (const std::shared_ptr<Flight>& flight : running_) {
    if (flight != nullptr) load.running_requests += static_cast<int>(flight->tasks.size());
  }
  return load;
}

void Scheduler::NoteProgress() {
  const absl::Time now = clock_.Now();
  base::MutexLock lock(&mutex_);
  last_progress_ = now;
}

absl::Status Scheduler::health() const {
  RIDGELINE_RETURN_IF_ERROR(device_.health());
  const absl::Time now = clock_.Now();
  base::MutexLock lock(&mutex_);
  const absl::Duration silence = Silence(now);
  absl::Duration allowed = kStuckAfter;
  for (const std::shared_ptr<Flight>& flight : running_) {
    if (flight == nullptr) continue;
    for (const std::shared_ptr<Task>& task : flight->tasks) allowed += kSlowest * task->traits.roof_time;
  }
  if (silence <= allowed) return absl::OkStatus();
  return base::WithReason(
      absl::UnavailableError(absl::StrCat("work is pending and none has completed for ", absl::FormatDuration(silence))),
      base::kReasonDeviceFailed);
}

}  // namespace ridgeline::engine
