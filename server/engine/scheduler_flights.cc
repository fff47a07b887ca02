// Lanes and what runs on them: from the lease to the answers.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/common/saturating.h"
#include "server/base/error.h"
#include "server/engine/scheduler.h"
#include "server/engine/scheduler_errors.h"

namespace ridgeline::engine {
namespace {

// Answers that one thread sends before it is worth waking another.
constexpr std::size_t kMostAnswersAtOnce = 4;

}  // namespace

// ---- Lanes ------------------------------------------------------------------------------------------------------------------

bool Scheduler::CanLease() const { return !free_lanes_.empty() && !runs_alone_; }

void Scheduler::FillLanes(absl::Time now, Decisions& decisions) {
  while (CanLease()) {
    Tasks tasks = NextToLeave(now, decisions);
    if (tasks.empty()) return;
    decisions.starts.push_back(Lease(std::move(tasks)));
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

std::shared_ptr<Flight> Scheduler::Lease(Tasks tasks) {
  auto flight = std::make_shared<Flight>();
  flight->had_company = NumBusyLanes() > 0;
  flight->lane = free_lanes_.back();
  flight->lease = ++num_leases_;
  // Under the lock: `now` of a caller who waited for it may lie before the lane's last launch ended.
  flight->lease_begin = clock_.Now();
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
  device::Lane* lane = &device_.lane(flight->lane);
  // What has the device for itself, a benchmark, is measured: its lane is left as it is.
  if (trace_.is_on() && !flight->tasks.front()->traits.exclusive) {
    flight->traced_lane = std::make_unique<TracedLane>(*lane);
    lane = flight->traced_lane.get();
  }
  flight->launch = members.front()->MakeLaunch(members);
  flight->queue_status = flight->cancel->load() ? Cancelled() : ReserveMemory(*flight);
  if (flight->queue_status.ok()) flight->queue_status = flight->launch->Queue(*lane, flight->cancel);
  // After a failure too: what had been queued before it still runs, and uses the launch's memory.
  flight->launch->OnEnd(
      *lane, [self = shared_from_this(), flight](const absl::Status& status) { self->OnLaneComplete(flight, status); });
}

absl::Status Scheduler::ReserveMemory(const Flight& flight) {
  std::int64_t size_bytes = 0;
  for (const std::shared_ptr<Task>& task : flight.tasks) {
    size_bytes = kernels::SaturatingAdd(size_bytes, task->traits.device_bytes);
  }
  const WorkTraits& first = flight.tasks.front()->traits;
  auto owner = std::make_shared<device::MemoryOwner>(
      device::MemoryOwner{.operation = first.operation, .request_id = first.origin.request_id});
  if (flight.tasks.size() > 1) absl::StrAppend(&owner->request_id, " and ", flight.tasks.size() - 1, " more");
  device::Lane& lane = device_.lane(flight.lane);
  absl::Status status = lane.Reserve(size_bytes, owner);
  // The sum is more than a shared launch takes, and who is alone need not fear others.
  const bool may_do_without = flight.tasks.size() > 1 || !flight.had_company;
  return !status.ok() && may_do_without ? lane.Reserve(0, owner) : status;
}

void Scheduler::OnLaneComplete(const std::shared_ptr<Flight>& flight, const absl::Status& lane_status) {
  absl::Status status = flight->queue_status.ok() ? lane_status : flight->queue_status;
  const std::vector<Ending> endings = EndingsOf(*flight, status);
  std::vector<absl::Status> outcomes;
  outcomes.reserve(endings.size());
  for (const Ending ending : endings) outcomes.push_back(ending == Ending::kAnswer ? status : Cancelled());
  if (trace_.is_on()) Trace(*flight, endings, status);
  // Before the lane goes on: its next tenant may get the same memory.
  flight->launch->Release(outcomes);
  flight->launch.reset();
  device_.lane(flight->lane).EndReservation();
  for (std::size_t i = 0; i < endings.size(); ++i) {
    if (endings[i] != Ending::kRetry) flight->tasks[i]->work->Drop();
  }
  Decisions next = ReturnLane(*flight, endings);
  Tasks answered;
  for (std::size_t i = 0; i < endings.size(); ++i) {
    if (endings[i] == Ending::kAnswer) answered.push_back(flight->tasks[i]);
  }
  // Others send many answers while this thread starts the next launch; few wait until it has.
  const bool are_many = answered.size() > kMostAnswersAtOnce;
  if (are_many) PostAnswers(answered, status);
  CarryOut(std::move(next));
  if (are_many) return;
  for (const std::shared_ptr<Task>& task : answered) Finish(*task, status);
}

void Scheduler::Trace(const Flight& flight, absl::Span<const Ending> endings, const absl::Status& status) {
  const absl::Time now = clock_.Now();
  LaunchRecord launch{.number = trace_.NextLaunch(),
                      .lane = flight.lane,
                      .begin = flight.lease_begin,
                      .end = now,
                      .error = status.ok() ? "" : std::string(status.message())};
  for (std::size_t i = 0; i < endings.size(); ++i) {
    const Task& task = *flight.tasks[i];
    launch.request_ids.push_back(task.traits.origin.request_id);
    if (endings[i] == Ending::kRetry) continue;
    trace_.Add(RequestRecord{.origin = task.traits.origin,
                             .arrival = task.arrival,
                             .lease_begin = flight.lease_begin,
                             .completed = now,
                             .launch = launch.number});
  }
  // After an error nobody knows which events were recorded.
  if (flight.traced_lane != nullptr && status.ok()) launch.spans = flight.traced_lane->Spans();
  trace_.Add(std::move(launch));
}

void Scheduler::PostAnswers(const Tasks& answered, const absl::Status& status) {
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
  metrics_.lane_busy_seconds.Increment(std::max(0.0, absl::ToDoubleSeconds(now - flight.lease_begin)));
  former_.NoteRelease();
  last_progress_ = now;
  const bool is_typical = !flight.tasks.front()->traits.exclusive;
  if (is_typical)
    mean_work_time_ += ((now - flight.lease_begin) / static_cast<std::int64_t>(flight.tasks.size()) - mean_work_time_) / 8;
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

}  // namespace ridgeline::engine
