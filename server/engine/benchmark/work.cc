#include "server/engine/benchmark/work.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/base/error.h"
#include "server/base/mutex.h"
#include "server/base/status_macros.h"
#include "server/engine/scheduler_errors.h"

namespace ridgeline::engine::benchmark {
namespace {

class BenchmarkWork final : public Work {
 public:
  BenchmarkWork(Plan plan, absl::Time deadline, TellEvent tell, Done done, WorkSurroundings surroundings)
      : plan_(std::move(plan)),
        deadline_(deadline),
        surroundings_(std::move(surroundings)),
        tell_(std::move(tell)),
        done_(std::move(done)) {}

  absl::StatusOr<Turn> Begin(absl::Duration queue_time) override {
    wait_time_ = queue_time;
    return Turn::kGo;
  }

  std::unique_ptr<Launch> MakeLaunch(absl::Span<Work* const> members) override;

  void Drop() override {}

  void Finish(const absl::Status& status) override {
    {
      base::MutexLock lock(&mutex_);
      is_finished_ = true;
      tell_ = nullptr;
    }
    done_(status);
  }

  absl::Status Run(device::Lane& lane, const device::CancelToken& cancel) {
    const auto interest = [&]() -> absl::Status {
      surroundings_.note_progress();
      if (cancel->load()) return Cancelled();
      if (surroundings_.run.clock.Now() >= deadline_) {
        return base::WithReason(absl::DeadlineExceededError("the deadline came before the benchmark was done"),
                                base::kReasonDeadlineExceeded);
      }
      return surroundings_.run.device.health();
    };
    return Execute(plan_, surroundings_.run, lane, interest, [this](Event event) { Tell(std::move(event)); });
  }

  AnswerThreads& thread() { return surroundings_.thread; }

 private:
  void Tell(Event event) {
    if (auto* const summary = std::get_if<Summary>(&event)) {
      summary->wait_time = wait_time_;
      summary->serving_policy = surroundings_.serving_policy;
    }
    base::MutexLock lock(&mutex_);
    if (!is_finished_) tell_(std::move(event));
  }

  const Plan plan_;
  const absl::Time deadline_;
  WorkSurroundings surroundings_;
  absl::Duration wait_time_;
  base::Mutex mutex_;
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  TellEvent tell_ ABSL_GUARDED_BY(mutex_);
  Done done_;
};

class BenchmarkLaunch final : public Launch {
 public:
  explicit BenchmarkLaunch(BenchmarkWork& work) : work_(work) {}

  absl::Status Queue(device::Lane& /*lane*/, const device::CancelToken& cancel) override {
    cancel_ = cancel;
    return absl::OkStatus();
  }

  void OnEnd(device::Lane& lane, absl::AnyInvocable<void(absl::Status)> done) override {
    if (cancel_ == nullptr) return Launch::OnEnd(lane, std::move(done));  // it was not to start
    // `done` ends the launch, which nothing here may touch after it.
    work_.thread().Post(
        [&work = work_, &lane, cancel = cancel_, done = std::move(done)]() mutable { done(work.Run(lane, cancel)); });
  }

  void Release(absl::Span<const absl::Status> /*outcomes*/) override {}

 private:
  BenchmarkWork& work_;
  device::CancelToken cancel_;  // null until it is to start
};

std::unique_ptr<Launch> BenchmarkWork::MakeLaunch(absl::Span<Work* const> /*members*/) {
  return std::make_unique<BenchmarkLaunch>(*this);
}

}  // namespace

std::unique_ptr<Work> MakeBenchmarkWork(Plan plan, absl::Time deadline, TellEvent tell, Done done,
                                        WorkSurroundings surroundings) {
  return std::make_unique<BenchmarkWork>(std::move(plan), deadline, std::move(tell), std::move(done), std::move(surroundings));
}

}  // namespace ridgeline::engine::benchmark
