#include "server/engine/benchmark/run.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/limits.h"
#include "server/engine/measure/device_trial.h"
#include "server/engine/measure/sampling.h"
#include "server/engine/measure/statistics.h"
#include "server/engine/report.h"

namespace ridgeline::engine::benchmark {
namespace {

using measure::AwaitLane;
using measure::CacheFlush;
using measure::DeviceTrial;
using measure::Samples;

// What stands in the way of one point alone: the rest can be measured.
bool IsReasonToSkip(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnimplemented(status) || absl::IsInvalidArgument(status);
}

// A trial on the host's clock.
class HostTrial final : public measure::Trial {
 public:
  HostTrial(Subject& subject, absl::FunctionRef<absl::Status()> interest) : subject_(subject), interest_(interest) {}

  absl::StatusOr<absl::Duration> TakeSample(std::int64_t repetitions) override { return subject_.run_and_time(repetitions); }
  absl::Status CheckInterest() override { return interest_(); }

 private:
  Subject& subject_;
  const absl::FunctionRef<absl::Status()> interest_;
};

class Execution {
 public:
  Execution(const Plan& plan, const RunSurroundings& surroundings, device::Lane& lane,
            absl::FunctionRef<absl::Status()> interest)
      : plan_(plan), surroundings_(surroundings), lane_(lane), interest_(interest) {}

  absl::StatusOr<Point> MeasurePoint(const AxisValues& values) {
    Point point;
    point.values = values;
    const absl::Status status = Measure(values, point);
    // Whatever was queued has run before the point's buffers go, which they have by now; and a skipped point says nothing else.
    if (status.ok()) return point;
    if (!IsReasonToSkip(status)) return status;
    Point skipped;
    skipped.values = values;
    skipped.skipped_reason = std::string(status.message());
    return skipped;
  }

 private:
  absl::Status Measure(const AxisValues& values, Point& point) {
    absl::StatusOr<Subject> subject =
        plan_.benchmark->make_subject({surroundings_.device, lane_, values, plan_.seed, surroundings_.empty_call});
    RIDGELINE_RETURN_IF_ERROR(AwaitLane(lane_));
    RIDGELINE_RETURN_IF_ERROR(subject.status());
    std::optional<CacheFlush> flush;
    if (plan_.cold_cache && subject->queue != nullptr) {
      RIDGELINE_ASSIGN_OR_RETURN(flush, CacheFlush::Create(lane_, surroundings_.device.info()));
    }
    DeviceTrial device_trial(surroundings_.device, lane_, subject->queue, flush.has_value() ? &*flush : nullptr, interest_);
    HostTrial host_trial(*subject, interest_);
    measure::Trial& trial = subject->queue != nullptr ? static_cast<measure::Trial&>(device_trial) : host_trial;

    RIDGELINE_RETURN_IF_ERROR(interest_());
    RIDGELINE_ASSIGN_OR_RETURN(const absl::Duration first_run, trial.TakeSample(1));
    if (subject->check != nullptr) RIDGELINE_RETURN_IF_ERROR(CheckResult(values, *subject));
    point.before = surroundings_.device.gpu_status();
    RIDGELINE_ASSIGN_OR_RETURN(const Samples samples,
                               measure::TakeSamples(trial, first_run, plan_.limits, surroundings_.clock));
    point.after = surroundings_.device.gpu_status();
    Fill(*subject, samples, point);
    return absl::OkStatus();
  }

  static absl::Status CheckResult(const AxisValues& values, Subject& subject) {
    const absl::Status status = subject.check();
    if (status.ok() || !absl::IsInternal(status)) return status;
    return absl::InternalError(absl::StrCat("the result at ", values.ToString(), " is wrong: ", status.message()));
  }

  void Fill(const Subject& subject, const Samples& samples, Point& point) const {
    point.statistics = measure::Summarise(samples.seconds);
    point.stop_reason = samples.stop_reason;
    point.repetitions = samples.repetitions;
    point.discarded_samples = samples.discarded;
    point.throttled = samples.throttled;
    point.noisy = samples.stop_reason == measure::StopReason::kTimeLimit;
    point.data_type = subject.data_type;
    ExecutionReport& report = point.report;
    report.device = surroundings_.device.info().name;
    report.kernel = subject.kernel;
    report.kernel_reason = subject.kernel_reason;
    report.algorithm = subject.algorithm;
    report.kernel_time = absl::Seconds(point.statistics.median);
    report.flops = subject.flops;
    report.bytes = subject.bytes;
    report.workspace_bytes = subject.workspace_bytes;
    PlaceOnRoofline(subject.has_roof ? surroundings_.roofline : Roofline(), subject.data_type, report);
    if (subject.figures != nullptr) point.figures = subject.figures(point.statistics.median);
  }

  const Plan& plan_;
  const RunSurroundings& surroundings_;
  device::Lane& lane_;
  const absl::FunctionRef<absl::Status()> interest_;
};

void Count(const Point& point, Summary& summary) {
  if (!point.skipped_reason.empty()) {
    ++summary.skipped_points;
    return;
  }
  ++summary.points;
  summary.throttled_points += point.throttled ? 1 : 0;
  summary.noisy_points += point.noisy ? 1 : 0;
}

absl::Status MeasureAll(const Plan& plan, const RunSurroundings& surroundings, device::Lane& lane,
                        absl::FunctionRef<absl::Status()> interest, absl::FunctionRef<void(Event)> tell) {
  Execution execution(plan, surroundings, lane, interest);
  Summary summary;
  const absl::Time begin = surroundings.clock.Now();
  std::vector<Point> measured;
  Progress progress{.points_total = static_cast<std::int64_t>(plan.points.size())};
  for (const AxisValues& values : plan.points) {
    progress.current = values;
    tell(progress);
    RIDGELINE_ASSIGN_OR_RETURN(Point point, execution.MeasurePoint(values));
    Count(point, summary);
    if (point.skipped_reason.empty()) measured.push_back(point);
    tell(std::move(point));
    ++progress.points_done;
  }
  summary.elapsed = surroundings.clock.Now() - begin;
  summary.limits = plan.limits;
  summary.cold_cache = plan.cold_cache;
  summary.seed = plan.seed;
  summary.input_distribution = "normal(0, 1)";
  summary.judgement.explanation = "no point was measured";
  if (plan.benchmark->judge != nullptr && !measured.empty()) {
    summary.judgement = plan.benchmark->judge(measured, surroundings.device.info());
  }
  tell(std::move(summary));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const Request& request, const device::DeviceInfo& device) {
  const Benchmark* const benchmark = FindBenchmark(request.name, device.type);
  if (benchmark == nullptr) {
    const std::string names =
        absl::StrJoin(Benchmarks(device.type), ", ", [](std::string* out, const Benchmark& each) { *out += each.name; });
    return base::WithReason(
        absl::NotFoundError(absl::StrCat("there is no benchmark '", request.name.substr(0, 64), "'; there are ", names)),
        base::kReasonBenchmarkNotFound);
  }
  if (const std::string reason = benchmark->unsupported_reason(device); !reason.empty()) {
    return base::Unsupported("name", absl::StrCat(request.name, " can't be measured here: ", reason));
  }
  Plan plan{
      .benchmark = benchmark, .points = {}, .limits = {}, .cold_cache = request.measurement.cold_cache, .seed = request.seed};
  RIDGELINE_ASSIGN_OR_RETURN(plan.points, ExpandAxes(benchmark->axes, request.axes, [&](const AxisValues& values) {
                               return benchmark->makes_sense == nullptr || benchmark->makes_sense(values);
                             }));
  RIDGELINE_ASSIGN_OR_RETURN(plan.limits, ResolveLimits(request.measurement, static_cast<std::int64_t>(plan.points.size())));
  return plan;
}

absl::Status Execute(const Plan& plan, const RunSurroundings& surroundings, device::Lane& lane,
                     absl::FunctionRef<absl::Status()> interest, absl::FunctionRef<void(Event)> tell) {
  const absl::Status status = MeasureAll(plan, surroundings, lane, interest, tell);
  // What measuring took is no cache for serving.
  surroundings.device.EmptyMemoryCache();
  return status;
}

}  // namespace ridgeline::engine::benchmark
