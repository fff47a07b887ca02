#include "server/engine/engine.h"

#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/attention/cost.h"
#include "kernels/common/saturating.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/base/units.h"
#include "server/engine/answer_threads.h"
#include "server/engine/append_work.h"
#include "server/engine/attend.h"
#include "server/engine/benchmark/instrument.h"
#include "server/engine/cache_maker.h"
#include "server/engine/engine_metrics.h"
#include "server/engine/fuse.h"
#include "server/engine/lease_sweeper.h"
#include "server/engine/paged_attend_work.h"
#include "server/engine/random_rows.h"
#include "server/engine/report.h"
#include "server/engine/scheduler.h"
#include "server/engine/scheduler_errors.h"
#include "server/engine/sequence_reader.h"
#include "server/engine/sequence_writer.h"
#include "server/engine/validate_attend.h"
#include "server/engine/validate_fuse.h"
#include "server/engine/validate_paged.h"

namespace ridgeline::engine {
namespace {

using kernels::attention::Algorithm;
using kernels::attention::AttentionPlan;

absl::Status TooLarge(absl::string_view message) {
  return base::WithReason(absl::ResourceExhaustedError(message), base::kReasonOutOfMemory);
}

// Known before anything runs: nobody waits for an answer that cannot be sent.
absl::Status CheckAnswerSize(std::int64_t answer_bytes, std::int64_t max_answer_bytes, absl::string_view smaller) {
  if (answer_bytes <= max_answer_bytes) return absl::OkStatus();
  return base::WithReason(absl::ResourceExhaustedError(absl::StrCat("the answer would take ", base::FormatBytes(answer_bytes),
                                                                    "; one message holds ", base::FormatBytes(max_answer_bytes),
                                                                    ": split the batch", smaller,
                                                                    ", or set output.discard to get the report alone")),
                          base::kReasonMessageTooLarge);
}

absl::Status CheckAnswerSize(const AttendProblem& problem, std::int64_t max_answer_bytes) {
  return CheckAnswerSize(problem.answer_bytes(), max_answer_bytes, ", ask for a narrower output.data_type");
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(const EngineOptions& options, device::Device& device, Roofline roofline, base::MetricsRegistry& metrics,
             const base::Clock& clock)
      : device_(device),
        clock_(clock),
        roofline_(std::move(roofline)),
        metrics_(metrics, device, roofline_),
        kv_caches_(
            options.kv_cache, [&device](std::int64_t size_bytes) { return device.Allocate(size_bytes); }, clock),
        answer_threads_(options.answer_threads),
        scheduler_(std::make_shared<Scheduler>(SchedulerOptions{options.admission, options.batches, options.serving_waits},
                                               device, clock, metrics_.scheduler(), answer_threads_, trace_)),
        instrument_(device, roofline_, clock, *scheduler_, options.serving_waits, options.empty_call),
        on_scrape_(metrics.OnScrape([this] { metrics_.UpdateOnScrape(load(), health(), kv_caches_.statistics(), device_); })) {}

  ~EngineImpl() override { scheduler_->Drain(absl::InfiniteDuration()); }

  std::shared_ptr<Call> Attend(AttendRequest request, CallContext context, AttendDone done) override {
    if (request.paged.has_value()) return AttendPaged(std::move(request), std::move(context), done);
    if (serves_sessions_only_) return Refuse(DrainingTakesNoWork(), done);
    const absl::Time arrival = clock_.Now();
    absl::StatusOr<AttendProblem> problem = ValidateAttend(std::move(request));
    if (!problem.ok()) return Refuse(problem.status(), done);
    if (absl::Status status = CheckAnswerSize(*problem, context.max_answer_bytes); !status.ok()) return Refuse(status, done);
    absl::StatusOr<AttentionPlan> plan = Plan(*problem);
    if (!plan.ok()) return Refuse(plan.status(), done);
    WorkTraits traits{.client = std::move(context.caller.client),
                      .device_bytes = kernels::SaturatingAdd(problem->tensor_bytes(), plan->workspace_bytes),
                      .deadline = context.deadline,
                      .roof_time = AttendRoofTime(*problem, plan->algorithm),
                      .origin = std::move(context.origin),
                      .operation = "Attend"};
    return scheduler_->Submit(MakeAttendWork(*std::move(problem), *std::move(plan), std::move(done), surroundings_),
                              std::move(traits), arrival);
  }

  std::shared_ptr<Call> AppendKeyValue(AppendKeyValueRequest request, CallContext context, AppendKeyValueDone done) override {
    const absl::Time arrival = clock_.Now();
    absl::StatusOr<AppendProblem> problem = ValidateAppend(context.caller, std::move(request), kv_caches_);
    if (!problem.ok()) {
      metrics_.CountAppend(problem.status().code());
      done(problem.status());
      return nullptr;
    }
    for (TensorSource* tensor : {&problem->key, &problem->value}) MakeSmallRandomInline(*tensor);
    WorkTraits traits = TraitsOf(*problem, context);
    auto count_and_answer = [this, done = std::move(done)](absl::StatusOr<AppendKeyValueResult> result) mutable {
      metrics_.CountAppend(result.status().code());
      done(std::move(result));
    };
    return scheduler_->Submit(std::make_unique<AppendWork>(*std::move(problem), kv_caches_, std::move(count_and_answer)),
                              std::move(traits), arrival);
  }

  std::shared_ptr<Call> Fuse(FuseRequest request, CallContext context, FuseDone done) override {
    const absl::Time arrival = clock_.Now();
    const auto refuse = [this, &done](const absl::Status& status) {
      metrics_.CountFuse(status.code());
      done(status);
      return nullptr;
    };
    if (serves_sessions_only_ && request.op != kernels::fused::Op::kRopeAppend) return refuse(DrainingTakesNoWork());
    absl::StatusOr<FuseProblem> problem = ValidateFuse(context.caller, std::move(request), kv_caches_);
    if (!problem.ok()) return refuse(problem.status());
    absl::Status fits = CheckAnswerSize(problem->answer_bytes(), context.max_answer_bytes, "");
    fits.Update(CheckDeviceMemory(*problem));
    if (!fits.ok()) return refuse(fits);
    WorkTraits traits = TraitsOf(*problem, context);
    return scheduler_->Submit(MakeFuseWork(*std::move(problem), std::move(done), fuse_surroundings_), std::move(traits),
                              arrival);
  }

  std::shared_ptr<Call> CreateKvCache(kv_cache::CreateCacheRequest request, CallContext context,
                                      CreateKvCacheDone done) override {
    if (serves_sessions_only_) {
      done(DrainingTakesNoWork());
      return nullptr;
    }
    return cache_maker_.Make(context, std::move(request), std::move(done));
  }

  absl::StatusOr<std::unique_ptr<SequenceReader>> ExportSequence(const kv_cache::Caller& caller,
                                                                 const std::string& name) override {
    RIDGELINE_ASSIGN_OR_RETURN(auto transfer, kv_caches_.BeginExport(caller, name));
    return MakeSequenceReader(std::move(transfer), kv_caches_, scheduler_, clock_);
  }

  absl::StatusOr<std::unique_ptr<SequenceWriter>> ImportSequence(const kv_cache::Caller& caller, const std::string& parent,
                                                                 const std::string& sequence_id,
                                                                 SequenceHeader header) override {
    RIDGELINE_ASSIGN_OR_RETURN(auto transfer, kv_caches_.BeginImport(caller, parent, sequence_id));
    RIDGELINE_RETURN_IF_ERROR(CheckHeader(transfer->geometry(), header));
    return MakeSequenceWriter(std::move(transfer), std::move(header), kv_caches_, scheduler_, clock_);
  }

  std::vector<benchmark::Description> ListBenchmarks() const override { return instrument_.List(); }

  std::shared_ptr<Call> Benchmark(benchmark::Request request, CallContext context, benchmark::TellEvent tell,
                                  benchmark::Done done) override {
    if (serves_sessions_only_) {
      done(DrainingTakesNoWork());
      return nullptr;
    }
    auto count_and_tell = [this, run = BenchmarkMetrics::Run{.benchmark = request.name, .is_default = request.axes.empty()},
                           tell = std::move(tell)](benchmark::Event event) mutable {
      metrics_.benchmarks().Note(event, run);
      tell(std::move(event));
    };
    return instrument_.Start(std::move(request), std::move(context), std::move(count_and_tell), std::move(done));
  }

  bool DrainSessions(absl::Duration timeout) override {
    constexpr absl::Duration kLookAgain = absl::Milliseconds(50);
    serves_sessions_only_ = true;
    const absl::Time end = base::Clock::Real().Now() + timeout;
    while (true) {
      kv_caches_.SweepExpired();
      if (kv_caches_.statistics().caches == 0) return true;
      if (base::Clock::Real().Now() >= end) return false;
      absl::SleepFor(kLookAgain);
    }
  }

  bool Drain(absl::Duration timeout) override {
    serves_sessions_only_ = true;
    return scheduler_->Drain(timeout);
  }
  kv_cache::KvCacheStore& kv_caches() override { return kv_caches_; }
  Load load() const override {
    Load load = scheduler_->load();
    load.draining = load.draining || serves_sessions_only_;
    return load;
  }
  const Roofline& roofline() const override { return roofline_; }
  device::Device& device() override { return device_; }
  TraceRecorder& trace() override { return trace_; }
  absl::Status health() const override { return scheduler_->health(); }

 private:
  std::shared_ptr<Call> AttendPaged(AttendRequest request, CallContext context, AttendDone& done) {
    const absl::Time arrival = clock_.Now();
    absl::StatusOr<PagedAttendProblem> problem = ValidatePagedAttend(context.caller, std::move(request), kv_caches_);
    if (!problem.ok()) return Refuse(problem.status(), done);
    AttendProblem& attend = problem->attend;
    if (absl::Status status = CheckAnswerSize(attend, context.max_answer_bytes); !status.ok()) return Refuse(status, done);
    const absl::StatusOr<AttentionPlan> plan = Plan(attend);  // the launch, which may have company, makes its own
    if (!plan.ok()) return Refuse(plan.status(), done);
    for (TensorSource* tensor : {&attend.query, &attend.key, &attend.value}) MakeSmallRandomInline(*tensor);
    WorkTraits traits = TraitsOf(*problem, plan->workspace_bytes, context);
    if (traits.size == WorkSize::kPrefill) traits.roof_time = AttendRoofTime(attend, plan->algorithm);
    return scheduler_->Submit(std::make_unique<PagedAttendWork>(*std::move(problem), std::move(done),
                                                                PagedSurroundings{surroundings_, device_, kv_caches_}),
                              std::move(traits), arrival);
  }

  absl::Duration AttendRoofTime(const AttendProblem& problem, Algorithm algorithm) const {
    const kernels::attention::Cost cost =
        kernels::attention::CountCost(problem.shape, problem.sequences.data(), problem.optional_tensors(), algorithm);
    return RoofTime(roofline_, problem.shape.data_type, cost.flops, cost.bytes);
  }

  std::shared_ptr<Call> Refuse(const absl::Status& status, AttendDone& done) {
    metrics_.CountAttend(status.code());
    done(status);
    return nullptr;
  }

  // Ok if the device could have the memory, were nothing else running.
  absl::Status CheckDeviceMemory(const FuseProblem& problem) const {
    using kernels::fused::Mode;
    const std::int64_t limit_bytes = device_.info().memory_limit_bytes;
    const std::int64_t needed_bytes = problem.device_bytes(problem.mode());
    if (needed_bytes <= limit_bytes) return absl::OkStatus();
    const std::string fused_takes =
        problem.mode() == Mode::kFused
            ? ""
            : absl::StrCat("; fused it takes ", base::FormatBytes(problem.device_bytes(Mode::kFused)));
    return TooLarge(absl::StrCat("this request takes ", base::FormatBytes(needed_bytes), " of device memory; the limit is ",
                                 base::FormatBytes(limit_bytes), fused_takes));
  }

  // A plan whose memory the device could have, were nothing else running.
  absl::StatusOr<AttentionPlan> Plan(const AttendProblem& problem) const {
    const std::int64_t limit_bytes = device_.info().memory_limit_bytes;
    const std::int64_t tensor_bytes = problem.tensor_bytes();
    if (tensor_bytes > limit_bytes) {
      return TooLarge(absl::StrCat("the tensors of this request take ", base::FormatBytes(tensor_bytes),
                                   " of device memory; the limit is ", base::FormatBytes(limit_bytes)));
    }
    RIDGELINE_ASSIGN_OR_RETURN(AttentionPlan plan, device_.PlanAttention(problem.shape, problem.sequences, problem.algorithm));
    const std::int64_t needed_bytes = kernels::SaturatingAdd(tensor_bytes, plan.workspace_bytes);
    if (needed_bytes > limit_bytes) {
      return TooLarge(absl::StrCat(Name(plan.algorithm), " attention takes ", base::FormatBytes(needed_bytes),
                                   " of device memory for this request; the limit is ", base::FormatBytes(limit_bytes),
                                   Alternative(problem, plan.algorithm, tensor_bytes)));
    }
    return plan;
  }

  // "; flash attention takes 1.5 GiB (...)" for a request that standard attention is too large for.
  std::string Alternative(const AttendProblem& problem, Algorithm algorithm, std::int64_t tensor_bytes) const {
    if (algorithm == Algorithm::kFlash) return "";
    const absl::StatusOr<AttentionPlan> flash = device_.PlanAttention(problem.shape, problem.sequences, Algorithm::kFlash);
    if (!flash.ok()) return "";
    return absl::StrCat("; flash attention takes ",
                        base::FormatBytes(kernels::SaturatingAdd(tensor_bytes, flash->workspace_bytes)));
  }

  device::Device& device_;
  const base::Clock& clock_;
  std::atomic<bool> serves_sessions_only_{false};  // as far as it serves: it drains
  const Roofline roofline_;
  EngineMetrics metrics_;
  kv_cache::KvCacheStore kv_caches_;
  const LeaseSweeper sweeper_{kv_caches_};
  CacheMaker cache_maker_{kv_caches_};
  const AttendSurroundings surroundings_ = {device_.info(), roofline_, metrics_};
  const FuseSurroundings fuse_surroundings_ = {device_.info(), roofline_, metrics_, kv_caches_};
  AnswerThreads answer_threads_;
  TraceRecorder trace_;
  const std::shared_ptr<Scheduler> scheduler_;
  benchmark::Instrument instrument_;
  const std::shared_ptr<void> on_scrape_;  // last: unregisters before what it reads goes
};

}  // namespace

std::unique_ptr<Engine> CreateEngine(const EngineOptions& options, device::Device& device, Roofline roofline,
                                     base::MetricsRegistry& metrics, const base::Clock& clock) {
  return std::make_unique<EngineImpl>(options, device, std::move(roofline), metrics, clock);
}

}  // namespace ridgeline::engine
