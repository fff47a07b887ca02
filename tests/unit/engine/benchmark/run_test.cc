// Every benchmark of the table on the CPU device, small: results are checked, points are measured, memory comes back.
#include "server/engine/benchmark/run.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/table.h"
#include "tests/support/flaky_device.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/benchmark/events.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine::benchmark {
namespace {

using support::IsOk;
using support::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Values with which a benchmark takes milliseconds.
const std::map<std::string, std::map<std::string, std::vector<std::string>>>& SmallAxes() {
  static const auto* const kAxes = new std::map<std::string, std::map<std::string, std::vector<std::string>>>{
      {"memory_hierarchy", {{"working_set_bytes", {"1024", "17408", "1048576"}}}},
      {"compute_peak", {{"type", {"float32", "float64"}}, {"unit", {"fma"}}, {"chains", {"1", "12"}}}},
      {"roofline", {{"array_bytes", {"65536"}}}},
      {"coalescing", {{"pattern", {"stride", "misaligned", "arrays", "structures"}}, {"step", {"1", "3", "16"}}}},
      {"gemm_ladder", {{"size", {"16", "65", "130"}}}},
      {"fusion", {{"rows", {"1", "18"}}, {"columns", {"64", "192"}}}},
      {"transformer_step", {{"model", {"gpt2", "smollm2_135m"}}, {"tokens", {"3"}}}},
      {"recomputation", {{"blocks", {"1", "3"}}, {"tokens", {"6"}}, {"width", {"16"}}}},
      {"attention", {{"tokens", {"1", "33", "100"}}, {"head_dim", {"16"}}, {"page_tokens", {"0", "7"}}, {"batch", {"3"}}}},
      {"online_softmax", {{"columns", {"64", "4096"}}}},
      {"launch_overhead", {{"kernels", {"1", "7"}}}},
      {"precision", {{"size", {"64"}}}},
      {"allocator", {{"size_bytes", {"1", "5000"}}}},
      {"batch_size", {{"batch", {"1", "3"}}, {"width", {"64"}}}},
  };
  return *kAxes;
}

constexpr MeasurementOptions kQuick{.warm_up = absl::ZeroDuration(), .max_time = absl::Milliseconds(1)};

class RunTest : public ::testing::Test {
 protected:
  absl::Status Run(const Request& request, Told& told) {
    RIDGELINE_ASSIGN_OR_RETURN(const Plan plan, MakePlan(request, device_.info()));
    return Execute(plan, {device_, roofline_, base::Clock::Real(), empty_call_}, device_.lane(0), interest_,
                   [&](const Event& event) { told.Add(event); });
  }
  absl::Status Run(const std::string& name, Told& told) { return Run(SmallRequest(name), told); }

  static Request SmallRequest(const std::string& name) {
    return {.name = name, .axes = SmallAxes().at(name), .measurement = kQuick};
  }

  support::FlakyDevice device_{MakeDevice(/*num_lanes=*/1)};
  const Roofline roofline_ = MadeUpRoofline();
  std::function<absl::Status()> interest_ = [] { return absl::OkStatus(); };
  int num_calls_ = 0;
  EmptyCall empty_call_ = [this] {
    ++num_calls_;
    return absl::OkStatus();
  };
};

class EveryBenchmark : public RunTest, public ::testing::WithParamInterface<std::string> {};

std::vector<std::string> NamesOnCpu() {
  std::vector<std::string> names;
  for (const auto& [name, axes] : SmallAxes()) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Table, EveryBenchmark, ::testing::ValuesIn(NamesOnCpu()), [](const auto& name) { return name.param; });

TEST_P(EveryBenchmark, MeasuresEachPointAndGivesItsMemoryBack) {
  Told told;
  ASSERT_THAT(Run(GetParam(), told), IsOk());
  EXPECT_EQ(told.progress.size(), told.points.size());
  for (const Point& point : told.points) {
    SCOPED_TRACE(point.values.ToString());
    EXPECT_THAT(point.skipped_reason, IsEmpty());
    EXPECT_GE(point.statistics.samples, 1);
    EXPECT_GT(point.statistics.median, 0);
    EXPECT_EQ(point.report.device, device_.info().name);
    EXPECT_THAT(point.report.kernel, Not(IsEmpty()));
    EXPECT_GE(point.repetitions, 1);
  }
  ASSERT_THAT(told.summaries, SizeIs(1));
  EXPECT_EQ(told.summaries[0].points, static_cast<std::int64_t>(told.points.size()));
  EXPECT_EQ(device_.memory_stats().allocation_count, 0);
  EXPECT_EQ(device_.memory_stats().reserved_bytes, 0);
}

TEST_P(EveryBenchmark, WithColdCachesToo) {
  Request request = SmallRequest(GetParam());
  request.measurement.cold_cache = true;
  for (auto& [name, values] : request.axes) values.resize(1);
  Told told;
  ASSERT_THAT(Run(request, told), IsOk());
  EXPECT_TRUE(told.summaries.at(0).cold_cache);
  EXPECT_EQ(device_.memory_stats().reserved_bytes, 0);
}

TEST_P(EveryBenchmark, ADeviceThatFailsAtAnyCallEndsItAndLosesNoMemory) {
  for (const std::int64_t n : {0, 1, 2, 3, 5, 8, 13, 21}) {
    device_.FailCall(n, absl::UnavailableError("injected"));
    Told told;
    EXPECT_THAT(Run(GetParam(), told), StatusIs(absl::StatusCode::kUnavailable)) << n;
    EXPECT_THAT(told.summaries, IsEmpty());
    EXPECT_EQ(device_.memory_stats().allocation_count, 0) << n;
  }
}

TEST_P(EveryBenchmark, WantOfMemorySkipsAPointAndTheRestRuns) {
  device_.FailCall(0, base::WithReason(absl::ResourceExhaustedError("no room"), base::kReasonOutOfMemory));
  Told told;
  ASSERT_THAT(Run(GetParam(), told), IsOk());
  EXPECT_EQ(told.points.at(0).skipped_reason, "no room");
  EXPECT_EQ(told.points.at(0).statistics.samples, 0);
  EXPECT_EQ(told.summaries.at(0).skipped_points, 1);
  EXPECT_GE(told.summaries.at(0).points, 1);
}

TEST_P(EveryBenchmark, LostInterestEndsIt) {
  interest_ = [] { return absl::CancelledError("enough"); };
  Told told;
  EXPECT_THAT(Run(GetParam(), told), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(told.points, IsEmpty());
  EXPECT_EQ(device_.memory_stats().reserved_bytes, 0);
}

TEST_F(RunTest, EveryRowThatTheCpuHasIsTested) {
  for (const Benchmark& benchmark : Benchmarks(device_.info().type)) {
    EXPECT_THAT(benchmark.claim, Not(IsEmpty())) << benchmark.name;
    EXPECT_EQ(benchmark.unsupported_reason(device_.info()).empty(), SmallAxes().contains(benchmark.name)) << benchmark.name;
  }
}

TEST_F(RunTest, ACudaDeviceHasEveryBenchmark) {
  device::DeviceInfo cuda = device_.info();
  cuda.type = device::DeviceType::kCuda;
  for (const Benchmark& benchmark : Benchmarks(cuda.type)) {
    EXPECT_EQ(benchmark.unsupported_reason(cuda), "") << benchmark.name;
    EXPECT_THAT(benchmark.claim, Not(IsEmpty())) << benchmark.name;
    EXPECT_NE(FindBenchmark(benchmark.name, device::DeviceType::kCpu), nullptr) << benchmark.name;
  }
}

TEST_F(RunTest, FlopsAndBytesAreByFormula) {
  Told told;
  ASSERT_THAT(Run({.name = "gemm_ladder", .axes = {{"size", {"65"}}, {"rung", {"naive"}}}, .measurement = kQuick}, told),
              IsOk());
  EXPECT_EQ(told.points.at(0).report.flops, 2 * 65 * 65 * 65);
  EXPECT_EQ(told.points.at(0).report.bytes, 3 * 65 * 65 * 4);
  Told roofline;
  const Request request{.name = "roofline",
                        .axes = {{"flops_per_byte", {"1/16", "1/8", "1/4", "1/2", "1", "64"}}, {"array_bytes", {"16384"}}},
                        .measurement = kQuick};
  ASSERT_THAT(Run(request, roofline), IsOk());
  const double intensities[] = {1.0 / 16, 1.0 / 8, 1.0 / 4, 1.0 / 2, 1, 64};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(roofline.points.at(i).report.arithmetic_intensity, intensities[i]);
}

TEST_F(RunTest, TheRooflineHasARidgeForEachType) {
  Told told;
  ASSERT_THAT(Run({.name = "roofline", .axes = {{"array_bytes", {"65536"}}}, .measurement = kQuick}, told), IsOk());
  const Judgement& judgement = told.summaries.at(0).judgement;
  ASSERT_THAT(judgement.findings, SizeIs(3)) << judgement.explanation;
  EXPECT_EQ(judgement.findings[0].name, "bytes_per_second");
  EXPECT_EQ(judgement.findings[1].name, "float32_flops_per_second");
  EXPECT_EQ(judgement.findings[2].name, "float32_ridge_point_flops_per_byte");
  EXPECT_DOUBLE_EQ(judgement.findings[2].value, judgement.findings[1].value / judgement.findings[0].value);
}

TEST_F(RunTest, ARidgeIsNotSoughtWhereNoPointLiesBesideIt) {
  Told told;
  const Request request{
      .name = "roofline", .axes = {{"flops_per_byte", {"1/16", "1/8"}}, {"array_bytes", {"65536"}}}, .measurement = kQuick};
  ASSERT_THAT(Run(request, told), IsOk());
  const Judgement& judgement = told.summaries.at(0).judgement;
  EXPECT_EQ(judgement.verdict, Verdict::kInconclusive);
  EXPECT_THAT(judgement.explanation, StartsWith("that needs ")) << "what follows \"not judged: \"";
}

TEST_F(RunTest, LaunchOverheadCallsTheServerAsOftenAsItSays) {
  const Request request{.name = "launch_overhead", .axes = {{"mode", {"rpc"}}}, .measurement = kQuick};
  Told told;
  ASSERT_THAT(Run(request, told), IsOk());
  EXPECT_GE(num_calls_, told.points.at(0).statistics.samples * told.points.at(0).repetitions);
  EXPECT_EQ(told.summaries.at(0).judgement.findings.at(0).name, "rpc_seconds");
}

TEST_F(RunTest, WithoutAServerToCallThatPointAloneIsSkipped) {
  Request request{.name = "launch_overhead", .axes = {{"mode", {"rpc", "queue"}}}, .measurement = kQuick};
  for (const EmptyCall& call : {EmptyCall(), EmptyCall([] { return absl::UnimplementedError("it wants TLS"); })}) {
    empty_call_ = call;
    Told told;
    ASSERT_THAT(Run(request, told), IsOk());
    EXPECT_THAT(told.points.at(0).skipped_reason, HasSubstr(call == nullptr ? "no server" : "TLS"));
    EXPECT_THAT(told.points.at(1).skipped_reason, IsEmpty());
  }
}

TEST_F(RunTest, FusionPredictsItsGainFromTheBytes) {
  Told told;
  const Request request{
      .name = "fusion", .axes = {{"op", {"gelu", "softmax"}}, {"rows", {"6"}}, {"columns", {"64"}}}, .measurement = kQuick};
  ASSERT_THAT(Run(request, told), IsOk());
  ASSERT_THAT(told.points, SizeIs(4));
  constexpr std::int64_t kTensorBytes = 6 * 64 * 4;
  EXPECT_EQ(told.points[0].values.Word("mode"), "unfused");
  EXPECT_EQ(told.points[0].report.bytes, 9 * kTensorBytes);  // three steps of two tensors, one of three
  EXPECT_EQ(told.points[1].report.bytes, 2 * kTensorBytes);
  for (const int i : {0, 1}) EXPECT_EQ(told.points[i].figures.at("predicted_gain"), 4.5);
  EXPECT_EQ(told.points[0].figures.at("kernels"), 4);
  EXPECT_EQ(told.points[1].figures.at("kernels"), 1);
  const Judgement& judgement = told.summaries.at(0).judgement;
  EXPECT_NE(judgement.verdict, Verdict::kInconclusive);
  ASSERT_THAT(judgement.findings, SizeIs(2));
  EXPECT_EQ(judgement.findings[0].name, "gelu_gain");
  EXPECT_DOUBLE_EQ(judgement.findings[0].value, told.points[0].statistics.median / told.points[1].statistics.median);
}

TEST_F(RunTest, APointIsPlacedOnTheRoofline) {
  Told told;
  ASSERT_THAT(Run({.name = "batch_size", .axes = {{"batch", {"1"}}, {"width", {"64"}}}, .measurement = kQuick}, told), IsOk());
  const ExecutionReport& report = told.points.at(0).report;
  EXPECT_NE(report.bound, Bound::kUnknown);
  EXPECT_GT(report.roof_fraction, 0);
  EXPECT_DOUBLE_EQ(report.flops_per_second, static_cast<double>(report.flops) / absl::ToDoubleSeconds(report.kernel_time));
}

TEST_F(RunTest, APointThatDoesNotFitMemoryIsSkippedWithItsReason) {
  Told told;
  const Request request{.name = "roofline",
                        .axes = {{"flops_per_byte", {"1"}}, {"array_bytes", {"68719476736", "65536"}}},
                        .measurement = kQuick};
  ASSERT_THAT(Run(request, told), IsOk());
  EXPECT_THAT(told.points.at(0).skipped_reason, HasSubstr("memory"));
  EXPECT_THAT(told.points.at(1).skipped_reason, IsEmpty());
}

// What is queued runs to its end: a run of hours could not be cancelled.
TEST_F(RunTest, APointWhoseRunNobodyCouldAwaitIsSkipped) {
  Told told;
  Request stack{
      .name = "recomputation",
      .axes = {{"keep", {"none"}}, {"every", {"1"}}, {"blocks", {"256", "2"}}, {"tokens", {"4096"}}, {"width", {"64"}}},
      .measurement = kQuick};
  ASSERT_THAT(Run(stack, told), IsOk());
  EXPECT_THAT(told.points.at(0).skipped_reason, HasSubstr("one run is"));
  EXPECT_THAT(told.points.at(1).skipped_reason, IsEmpty());
  Told step;
  Request block{
      .name = "transformer_step",
      .axes = {{"model", {"llama_3_1_70b"}}, {"operation", {"attention"}}, {"mode", {"fused"}}, {"tokens", {"1048576"}}},
      .measurement = kQuick};
  ASSERT_THAT(Run(block, step), IsOk());
  EXPECT_THAT(step.points.at(0).skipped_reason, HasSubstr("one run is"));
}

TEST_F(RunTest, UnknownNamesAndWhatTheDeviceLacks) {
  const auto unknown = MakePlan({.name = "perpetual_motion", .axes = {}, .measurement = {}}, device_.info());
  EXPECT_THAT(unknown, StatusIs(absl::StatusCode::kNotFound, HasSubstr("memory_hierarchy")));
  EXPECT_EQ(base::ErrorReason(unknown.status()), base::kReasonBenchmarkNotFound);
  const auto lacking = MakePlan({.name = "divergence", .axes = {}, .measurement = {}}, device_.info());
  EXPECT_THAT(lacking, StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_EQ(base::ErrorField(lacking.status()), "name");
}

TEST_F(RunTest, TheSeedDrawsTheInputsAndIsRecorded) {
  Told told;
  Request request = SmallRequest("precision");
  request.seed = 77;
  ASSERT_THAT(Run(request, told), IsOk());
  EXPECT_EQ(told.summaries.at(0).seed, 77u);
  EXPECT_EQ(told.summaries.at(0).input_distribution, "normal(0, 1)");
  Told again, other;
  ASSERT_THAT(Run(request, again), IsOk());
  request.seed = 78;
  ASSERT_THAT(Run(request, other), IsOk());
  const auto error = [](const Told& each) { return each.points.at(1).figures.at("relative_error"); };
  EXPECT_EQ(error(told), error(again));
  EXPECT_NE(error(told), error(other));
}

// Signs of the effect that need no clock.
TEST_F(RunTest, PrecisionFindsOverflowUnderflowAndErrors) {
  Told told;
  ASSERT_THAT(Run("precision", told), IsOk());
  const auto figure = [&](const std::string& type, const std::string& magnitude, const char* name) {
    for (const Point& point : told.points) {
      if (point.values.Word("type") == type && point.values.Word("magnitude") == magnitude) return point.figures.at(name);
    }
    return -1.0;
  };
  EXPECT_EQ(figure("float16", "1e5", "nonfinite_share"), 1);
  EXPECT_EQ(figure("bfloat16", "1e5", "nonfinite_share"), 0);
  EXPECT_GT(figure("float16", "1e-8", "zero_share"), 0.5);
  EXPECT_EQ(figure("bfloat16", "1e-8", "zero_share"), 0);
  EXPECT_LT(figure("float32", "1", "relative_error"), figure("float16", "1", "relative_error"));
  EXPECT_LT(figure("float16", "1", "relative_error"), figure("bfloat16", "1", "relative_error"));
}

}  // namespace
}  // namespace ridgeline::engine::benchmark
