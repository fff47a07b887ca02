// `ridgeline bench`
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client/cli/bench_comparison.h"
#include "client/cli/bench_document.h"
#include "client/cli/bench_flags.h"
#include "client/cli/benchmark_run.h"
#include "client/cli/commands.h"
#include "client/cli/terminal.h"

ABSL_FLAG(bool, list, false, "Don't measure: list the benchmarks, what they show, and those that this device lacks.");
ABSL_FLAG(std::string, compare, "",
          "An earlier run's output of --format=json: tells what became slower or faster from noise. Exit status 1 if anything "
          "became slower.");

ABSL_DECLARE_FLAG(std::string, format);

namespace ridgeline::cli {
namespace {

// Tables come as their benchmarks are done.
void PrintTable(const Document& document) {
  std::cout << RenderTable(document, StandardOutputTakesColour()) << "\n" << std::flush;
}

absl::StatusOr<std::optional<EarlierRun>> EarlierRunFromFlags() {
  const std::string path = absl::GetFlag(FLAGS_compare);
  if (path.empty()) return std::nullopt;
  absl::StatusOr<EarlierRun> run = EarlierRun::Read(path);
  if (!run.ok()) return run.status();
  return *std::move(run);
}

}  // namespace

absl::StatusOr<Result> RunBench(const client::Client& client) {
  const absl::StatusOr<std::optional<EarlierRun>> before = EarlierRunFromFlags();
  if (!before.ok()) return before.status();
  const absl::StatusOr<v1::ListBenchmarksResponse> list = client.ListBenchmarks();
  if (!list.ok()) return list.status();
  Result result;
  if (absl::GetFlag(FLAGS_list)) {
    result.document = ListDocument(*list);
    return result;
  }
  const absl::StatusOr<std::vector<SelectedBenchmark>> selected = SelectFromFlags(*list);
  if (!selected.ok()) return selected.status();
  const absl::StatusOr<v1::Device> device = client.GetDevice();
  if (!device.ok()) return device.status();

  const bool for_people = absl::GetFlag(FLAGS_format) == "table";
  std::vector<BenchmarkRun> runs;
  for (const SelectedBenchmark& benchmark : *selected) {
    absl::StatusOr<BenchmarkRun> run = RunBenchmark(client, benchmark.description, benchmark.request);
    if (!run.ok()) {
      result.interruption = run.status();
      break;
    }
    runs.push_back(*std::move(run));
    if (for_people) PrintTable(RunDocument(runs.back()));
  }
  if (runs.empty()) return result.interruption;
  if (!for_people) result.document = PointsDocument(device->name(), runs);
  if (!before->has_value()) return result;

  Comparison comparison = CompareRuns(**before, runs);
  if (for_people) result.document = std::move(comparison.document);
  if (comparison.num_slower > 0) result.complaint = absl::StrCat(comparison.num_slower, " points are slower than before");
  return result;
}

}  // namespace ridgeline::cli
