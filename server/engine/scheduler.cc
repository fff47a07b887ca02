#include "server/engine/scheduler.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::engine {
namespace {

constexpr absl::Duration kShortestRetryDelay = absl::Milliseconds(10);
constexpr absl::Duration kLongestRetryDelay = absl::Seconds(30);
constexpr absl::Duration kStuckAfter = absl::Minutes(1);

// Answers that one thread sends before it is worth waking another.
constexpr std::size_t kMostAnswersAtOnce = 4;

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
                     const SchedulerMetrics& metrics, AnswerThreads& answer_threads)
    : device_(device),
      clock_(clock),
      metrics_(metrics),
      answer_threads_(answer_threads),
      num_lanes_(device.num_lanes()),
      admission_(options.max_queued_requests, options.max_queued_bytes),
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
    FillLanes(now, decisions);
  }
  CarryOut(std::move(decisions));
  if (status.ok()) return call;
  task->work->Drop();
  task->work->Finish(status);
  return nullptr;
}

absl::Status Scheduler::Admit(const std::shared_ptr<Task>& task, absl::Time now, Decisions& decisions) {
  if (draining_) return Draining("the server is draining and takes no new work");
  if (task->traits.deadline <= now) return DeadlineExceeded();
  // Who waits in vain makes room. Swept only when room is short: otherwise that is done when a lane is free.
  if (admission_.IsFull(NumWaiting())) {
    for (const std::shared_ptr<Task>& late : former_.TakeExpired(now)) EndWith(late, DeadlineExceeded(), decisions);
  }
  const bool must_wait = NumWaiting() > 0 || !CanLease();
  RIDGELINE_RETURN_IF_ERROR(admission_.Admit(task->traits.device_bytes, must_wait, NumWaiting(), ExpectedWait()));
  if (!Pending()) last_progress_ = now;
  access_order_.Enter(*task);
  former_.Push(task, next_ticket_++);
  return absl::OkStatus();
}

// ---- Lanes ------------------------------------------------------------------------------------------------------------------

bool Scheduler::CanLease() const { return !free_lanes_.empty() && !runs_alone_; }

void Scheduler::FillLanes(absl::Time now, Decisions& decisions) {
  while (CanLease()) {
    Tasks tasks = NextToLeave(now, decisions);
    if (tasks.empty()) return;
    decisions.starts.push_back(Lease(std::move(tasks), now));
  }
}

Scheduler::Tasks Scheduler::NextToLeave(absl::Time now, Decisions& decisions) {
  while (!alone_.empty()) {
    if (NumBusyLanes() > 0) return {};
    const std::shared_ptr<Task> task = alone_.front();
    alone_.pop_front();
    if (task->traits.deadline > now) return {task};
    EndWith(task, DeadlineExceeded(), decisions);
  }
  BatchFormer::Departure departure = former_.Form(now);
  for (const std::shared_ptr<Task>& late : departure.expired) EndWith(late, DeadlineExceeded(), decisions);
  return std::move(departure.tasks);
}

std::shared_ptr<Flight> Scheduler::Lease(Tasks tasks, absl::Time now) {
  auto flight = std::make_shared<Flight>();
  flight->had_company = NumBusyLanes() > 0;
  flight->lane = free_lanes_.back();
  flight->lease = ++num_leases_;
  flight->lease_begin = now;
  flight->num_releases = former_.num_releases();
  flight->claim = former_.Leave(tasks);
  free_lanes_.pop_back();
  running_[flight->lane] = flight;
  runs_alone_ = tasks.front()->runs_alone;
  for (const std::shared_ptr<Task>& task : tasks) task->flight = flight.get();
  flight->tasks = std::move(tasks);
  return flight;
}

void Scheduler::ReturnLease(const Flight& flight) {
  former_.Return(flight.claim);
  running_[flight.lane] = nullptr;
  free_lanes_.push_back(flight.lane);
  runs_alone_ = false;
}

// ---- A launch ---------------------------------------------------------------------------------------------------------------

void Scheduler::CarryOut(Decisions decisions) {
  while (!decisions.starts.empty()) {
    const std::shared_ptr<Flight> flight = std::move(decisions.starts.front());
    decisions.starts.pop_front();
    Decisions more = Start(flight);
    decisions.starts.splice(decisions.starts.end(), more.starts);
    std::move(more.ends.begin(), more.ends.end(), std::back_inserter(decisions.ends));
  }
  for (const End& end : decisions.ends) {
    end.task->work->Drop();
    if (end.answer.has_value()) end.task->work->Finish(*end.answer);
    NoteEnd();
  }
}

Scheduler::Decisions Scheduler::Start(const std::shared_ptr<Flight>& flight) {
  std::vector<absl::StatusOr<Turn>> turns;
  turns.reserve(flight->tasks.size());
  for (const std::shared_ptr<Task>& task : flight->tasks) {
    turns.push_back(task->work->Begin(std::max(flight->lease_begin - task->arrival, absl::ZeroDuration())));
  }
  Decisions more = Settle(*flight, turns);
  if (!flight->tasks.empty()) Depart(flight);
  return more;
}

Scheduler::Decisions Scheduler::Settle(Flight& flight, absl::Span<const absl::StatusOr<Turn>> turns) {
  Decisions decisions;
  const absl::Time now = clock_.Now();
  base::MutexLock lock(&mutex_);
  Tasks going;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const std::shared_ptr<Task>& task = flight.tasks[i];
    if (turns[i].ok() && *turns[i] == Turn::kGo) {
      going.push_back(task);
      continue;
    }
    task->flight = nullptr;
    if (!turns[i].ok()) {
      EndWith(task, turns[i].status(), decisions);
    } else {
      task->refused_at = flight.num_releases;
      PutBack(task, decisions);
    }
  }
  const bool some_stay = going.size() < flight.tasks.size();
  flight.tasks = std::move(going);
  if (flight.tasks.empty()) ReturnLease(flight);
  if (some_stay) FillLanes(now, decisions);
  return decisions;
}

void Scheduler::Depart(const std::shared_ptr<Flight>& flight) {
  std::vector<Work*> members;
  members.reserve(flight->tasks.size());
  for (const std::shared_ptr<Task>& task : flight->tasks) {
    const absl::Duration queue_time = std::max(flight->lease_begin - task->arrival, absl::ZeroDuration());
    metrics_.queue_wait_seconds.Observe(absl::ToDoubleSeconds(queue_time));
    members.push_back(task->work.get());
  }
  metrics_.batch_requests.Observe(static_cast<double>(members.size()));
  device::Lane& lane = device_.lane(flight->lane);
  flight->launch = members.front()->MakeLaunch(members);
  flight->queue_status = flight->cancel->load() ? Cancelled() : flight->launch->Queue(lane, flight->cancel);
  // After a failure too: what had been queued before it still runs, and uses the launch's memory.
  lane.OnComplete([self = shared_from_this(), flight](const absl::Status& status) { self->OnLaneComplete(flight, status); });
}

void Scheduler::OnLaneComplete(const std::shared_ptr<Flight>& flight, const absl::Status& lane_status) {
  absl::Status status = flight->queue_status.ok() ? lane_status : flight->queue_status;
  const std::vector<Ending> endings = EndingsOf(*flight, status);
  std::vector<absl::Status> outcomes;
  outcomes.reserve(endings.size());
  for (const Ending ending : endings) outcomes.push_back(ending == Ending::kAnswer ? status : Cancelled());
  // Before the lane goes on: its next tenant may get the same memory.
  flight->launch->Release(outcomes);
  flight->launch.reset();
  for (std::size_t i = 0; i < endings.size(); ++i) {
    if (endings[i] != Ending::kRetry) flight->tasks[i]->work->Drop();
  }
  CarryOut(ReturnLane(*flight, endings));
  Answer(*flight, endings, status);
}

void Scheduler::Answer(const Flight& flight, absl::Span<const Ending> endings, const absl::Status& status) {
  Tasks answered;
  for (std::size_t i = 0; i < endings.size(); ++i) {
    if (endings[i] == Ending::kAnswer) answered.push_back(flight.tasks[i]);
  }
  if (answered.size() <= kMostAnswersAtOnce) {
    for (const std::shared_ptr<Task>& task : answered) Finish(*task, status);
    return;
  }
  const std::size_t num_threads = std::max(1, answer_threads_.size());
  const std::size_t share = std::max(kMostAnswersAtOnce, (answered.size() + num_threads - 1) / num_threads);
  for (std::size_t begin = 0; begin < answered.size(); begin += share) {
    const std::size_t end = std::min(begin + share, answered.size());
    answer_threads_.Post([self = shared_from_this(), status, tasks = Tasks(answered.begin() + begin, answered.begin() + end)] {
      for (const std::shared_ptr<Task>& task : tasks) self->Finish(*task, status);
    });
  }
}

std::vector<Ending> Scheduler::EndingsOf(const Flight& flight, absl::Status& status) {
  base::MutexLock lock(&mutex_);
  std::vector<Ending> endings;
  endings.reserve(flight.tasks.size());
  for (const std::shared_ptr<Task>& task : flight.tasks) endings.push_back(EndingOf(*task, flight, status));
  // Answers that are still being sent hold memory too: a later try may do.
  if (IsOutOfMemory(status)) status = base::WithRetryDelay(std::move(status), ExpectedWait());
  return endings;
}

Ending Scheduler::EndingOf(Task& task, const Flight& flight, const absl::Status& status) {
  if (task.finish_claimed) return Ending::kUnwanted;
  // Once queued, the work has let go of its inputs.
  if (IsOutOfMemory(status) && !flight.queue_status.ok() && !task.runs_alone) {
    const bool was_alone = !flight.had_company && flight.lease == num_leases_;
    if (flight.tasks.size() > 1 || !was_alone) return Ending::kRetry;
  }
  ClaimFinish(task);
  return Ending::kAnswer;
}

Scheduler::Decisions Scheduler::ReturnLane(const Flight& flight, absl::Span<const Ending> endings) {
  const absl::Time now = clock_.Now();
  Decisions decisions;
  base::MutexLock lock(&mutex_);
  ReturnLease(flight);
  former_.NoteRelease();
  last_progress_ = now;
  mean_lease_time_ += (now - flight.lease_begin - mean_lease_time_) / 8;
  for (std::size_t i = 0; i < endings.size(); ++i) {
    const std::shared_ptr<Task>& task = flight.tasks[i];
    task->flight = nullptr;
    if (endings[i] == Ending::kRetry) {
      task->runs_alone = flight.tasks.size() == 1;
      task->leaves_alone = true;
      PutBack(task, decisions);
    } else {
      Retire(*task);
    }
  }
  FillLanes(now, decisions);
  if (Idle()) became_idle_.SignalAll();
  return decisions;
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
  admission_.Discharge(task.traits.device_bytes);
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
  const absl::Duration wait = mean_lease_time_ * (NumWaiting() + 1) / num_lanes_;
  return std::clamp(wait, kShortestRetryDelay, kLongestRetryDelay);
}

int Scheduler::NumWaiting() const { return former_.size() + static_cast<int>(alone_.size()); }

int Scheduler::NumBusyLanes() const { return num_lanes_ - static_cast<int>(free_lanes_.size()); }

bool Scheduler::Pending() const { return NumWaiting() > 0 || NumBusyLanes() > 0; }

bool Scheduler::Idle() const { return !Pending() && pending_ends_ == 0; }

Load Scheduler::load() const {
  base::MutexLock lock(&mutex_);
  Load load{.queued_requests = NumWaiting(),
            .lanes = num_lanes_,
            .busy_lanes = NumBusyLanes(),
            .admitted_bytes = admission_.admitted_bytes(),
            .draining = draining_};
  for (const std::shared_ptr<Flight>& flight : running_) {
    if (flight != nullptr) load.running_requests += static_cast<int>(flight->tasks.size());
  }
  return load;
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
