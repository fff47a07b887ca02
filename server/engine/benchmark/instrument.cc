#include "server/engine/benchmark/instrument.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/base/error.h"
#include "server/engine/benchmark/run.h"
#include "server/engine/benchmark/table.h"

namespace ridgeline::engine::benchmark {
namespace {

// Most benchmarks take about ten seconds; a second try after one costs little.
constexpr absl::Duration kRetryDelay = absl::Seconds(1);

std::string PolicyText(bool serving_waits) {
  return serving_waits
             ? "other requests wait in the queue until the benchmark is done"
             : "other requests are refused with RESOURCE_EXHAUSTED, reason BENCHMARK_RUNNING, while the benchmark runs";
}

}  // namespace

Instrument::Instrument(device::Device& device, const Roofline& roofline, const base::Clock& clock, Scheduler& scheduler,
                       bool serving_waits, EmptyCall empty_call)
    : device_(device),
      roofline_(roofline),
      clock_(clock),
      scheduler_(scheduler),
      serving_policy_(PolicyText(serving_waits)),
      empty_call_(std::move(empty_call)) {}

std::vector<Description> Instrument::List() const {
  std::vector<Description> descriptions;
  for (const Benchmark& benchmark : Benchmarks(device_.info().type))
    descriptions.push_back(Describe(benchmark, device_.info()));
  return descriptions;
}

std::shared_ptr<Call> Instrument::Start(Request request, CallContext context, TellEvent tell, Done done) {
  const absl::Time arrival = clock_.Now();
  absl::StatusOr<Plan> plan = MakePlan(request, device_.info());
  absl::Status status = plan.status();
  if (status.ok()) status = Enter(request.name);
  if (!status.ok()) {
    done(status);
    return nullptr;
  }
  tell(Progress{.points_total = static_cast<std::int64_t>(plan->points.size()), .is_waiting = true});
  auto leave_and_answer = [this, done = std::move(done)](absl::Status end) mutable {
    Leave();
    done(std::move(end));
  };
  WorkTraits traits{.client = std::move(context.caller.client),
                    .deadline = context.deadline,
                    .exclusive = true,
                    .origin = std::move(context.origin),
                    .operation = "Benchmark"};
  return scheduler_.Submit(MakeBenchmarkWork(*std::move(plan), context.deadline, std::move(tell), std::move(leave_and_answer),
                                             {.run = {device_, roofline_, clock_, empty_call_},
                                              .thread = thread_,
                                              .serving_policy = serving_policy_,
                                              .note_progress = [&scheduler = scheduler_] { scheduler.NoteProgress(); }}),
                           std::move(traits), arrival);
}

absl::Status Instrument::Enter(const std::string& name) {
  base::MutexLock lock(&mutex_);
  if (running_.empty()) {
    running_ = name;
    running_since_ = clock_.Now();
    return absl::OkStatus();
  }
  const absl::Status refusal = absl::ResourceExhaustedError(
      absl::StrCat("the benchmark ", running_, " has had the device for ",
                   absl::FormatDuration(absl::Trunc(clock_.Now() - running_since_, absl::Milliseconds(1))),
                   "; one runs at a time: come back when it is done, or cancel it"));
  return base::WithRetryDelay(base::WithReason(refusal, base::kReasonBenchmarkRunning), kRetryDelay);
}

void Instrument::Leave() {
  base::MutexLock lock(&mutex_);
  running_.clear();
}

}  // namespace ridgeline::engine::benchmark
