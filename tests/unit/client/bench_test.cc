// What `ridgeline bench` makes of a daemon's answers: axes from words, tables, comparisons.
#include <string>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/bench_comparison.h"
#include "client/cli/bench_document.h"
#include "client/cli/bench_flags.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/client/made_up_benchmark.h"

namespace ridgeline::cli {
namespace {

using support::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(ParseAxesTest, AWordWithAnEqualsSignBeginsAnAxis) {
  ASSERT_OK_AND_ASSIGN(const auto axes, ParseAxes("tokens=1024,2048,phase=decode"));
  EXPECT_THAT(axes, UnorderedElementsAre(Pair("tokens", ElementsAre("1024", "2048")), Pair("phase", ElementsAre("decode"))));
  EXPECT_THAT(*ParseAxes(""), IsEmpty());
}

TEST(ParseAxesTest, OtherWordsAreUsageErrors) {
  for (const char* text : {"tokens", "=5", "5,tokens=6", "a=1,a=2"})
    EXPECT_TRUE(IsUsageError(ParseAxes(text).status())) << text;
}

TEST(BenchDocumentTest, ATableShowsWhatDiffersAndSaysTheRestOnce) {
  const std::string table = RenderTable(RunDocument(MadeUpRun()), /*colour=*/false);
  EXPECT_EQ(table, R"(made_up

It grows with its size.
All points: threads=2.

  order  size_bytes  median      ±  bandwidth    arithmetic  bound by  of roof  samples  latency_seconds  flags
  ─────  ──────────  ──────  ─────  ─────────  ────────────  ────────  ───────  ───────  ───────────────  ───────
  up       1.00 KiB  100 µs  0.2 %  20.0 GB/s  5.00 GFLOP/s  memory     50.0 %       10          1.00 ns
           2.00 KiB  200 µs  0.2 %  20.0 GB/s  5.00 GFLOP/s  memory     50.0 %       10          2.00 ns  noisy
  down     1.00 KiB       —      —          —             —  —               —        —                —  skipped

Skipped order=down, size_bytes=1024, threads=2: it does not fit.
The claim is borne out: twice the size takes twice the time.
2 points in 1.50 s, 1 skipped, 1 noisier than 0.5 %; other requests wait.
)");
}

TEST(BenchDocumentTest, ProgramsGetEveryFigure) {
  const std::string json = RenderJson(PointsDocument("Fake Device", {MadeUpRun()}));
  for (const char* member : {"\"benchmark\": \"made_up\"", "\"verdict\": \"borne out\"", "\"order\": \"up\"",
                             "\"size_bytes\": 2048", "\"median_seconds\": 2e-04", "\"p95_seconds\": 0.000202",
                             "\"latency_seconds\": 2e-09", "\"noisy\": true", "\"skipped_reason\": \"it does not fit\""}) {
    EXPECT_THAT(json, HasSubstr(member));
  }
}

TEST(BenchDocumentTest, FiguresThatAreWholeEverywhereAreCounts) {
  BenchmarkRun run = MadeUpRun();
  for (int i = 0; i < 2; ++i) {
    (*run.points[i].mutable_figures())["kernels"] = 7;
    (*run.points[i].mutable_figures())["gain"] = 1 + 1.5 * i;
  }
  const std::string text = RenderTable(RunDocument(run), /*colour=*/false);
  EXPECT_THAT(text, Not(HasSubstr("7.00")));
  EXPECT_THAT(text, HasSubstr("2.50"));
  EXPECT_THAT(text, HasSubstr("1.00"));
}

TEST(BenchDocumentTest, TheListSaysWhatTheDeviceLacks) {
  v1::ListBenchmarksResponse list;
  *list.add_benchmarks() = MadeUpRun().description;
  list.add_benchmarks()->set_name("impossible");
  list.mutable_benchmarks(1)->set_unsupported_reason("there are no warps");
  const std::string table = RenderTable(ListDocument(list), false);
  EXPECT_THAT(table, HasSubstr("order, size_bytes, threads"));
  EXPECT_THAT(table, HasSubstr("there are no warps."));
}

TEST(ComparisonTest, ChangesAreToldFromNoise) {
  const Spread before{.median = 100, .p5 = 95, .p95 = 105};
  EXPECT_EQ(Compare(before, {120, 110, 130}), Change::kSlower);
  EXPECT_EQ(Compare(before, {80, 75, 90}), Change::kFaster);
  EXPECT_EQ(Compare(before, {120, 104, 140}), Change::kNoise) << "the samples overlap";
  EXPECT_EQ(Compare(before, {80, 60, 96}), Change::kNoise);
  EXPECT_EQ(Compare({100, 99.9, 100.1}, {102, 101.9, 102.1}), Change::kNoise) << "too little to matter";
  EXPECT_EQ(Compare(before, before), Change::kNoise);
}

std::string JsonOf(const BenchmarkRun& run) { return RenderJson(PointsDocument("Fake Device", {run})); }

TEST(ComparisonTest, AFileFromBenchIsReadBack) {
  ASSERT_OK_AND_ASSIGN(const EarlierRun before, EarlierRun::Parse(JsonOf(MadeUpRun()), "before.json"));
  EXPECT_EQ(before.device(), "Fake Device");
  const BenchmarkRun run = MadeUpRun();
  const Spread* const spread = before.Find("made_up", run.points[1].axis_values());
  ASSERT_NE(spread, nullptr);
  EXPECT_DOUBLE_EQ(spread->median, 200e-6);
  EXPECT_EQ(before.Find("other", run.points[1].axis_values()), nullptr);
  EXPECT_EQ(before.Find("made_up", run.points[2].axis_values()), nullptr) << "it was skipped";
}

TEST(ComparisonTest, OfARunWithItselfNothingChanges) {
  ASSERT_OK_AND_ASSIGN(const EarlierRun before, EarlierRun::Parse(JsonOf(MadeUpRun()), "before.json"));
  const Comparison comparison = CompareRuns(before, {MadeUpRun()});
  EXPECT_EQ(comparison.num_slower, 0);
  EXPECT_EQ(comparison.num_faster, 0);
  EXPECT_EQ(comparison.document.rows->values.size(), 2u);
}

TEST(ComparisonTest, ASlowerPointIsFound) {
  ASSERT_OK_AND_ASSIGN(const EarlierRun before, EarlierRun::Parse(JsonOf(MadeUpRun()), "before.json"));
  BenchmarkRun now = MadeUpRun();
  SetTimes(now.points[1], 260e-6);
  const Comparison comparison = CompareRuns(before, {now});
  EXPECT_EQ(comparison.num_slower, 1);
  const std::string table = RenderTable(comparison.document, false);
  EXPECT_THAT(table, HasSubstr("SLOWER"));
  EXPECT_THAT(table, HasSubstr("1.30 ×"));
}

TEST(ComparisonTest, FilesOfOtherKindsAreRefused) {
  for (const char* text : {"", "{", "[]", "{}", "{\"points\": []}", "{\"points\": 5}", "{\"points\": [{}]}", "plain text"}) {
    EXPECT_THAT(EarlierRun::Parse(text, "before.json"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("before.json")))
        << text;
  }
  EXPECT_THAT(EarlierRun::Read("/nowhere/before.json"), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace ridgeline::cli
