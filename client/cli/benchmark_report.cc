// `ridgeline report`
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/bench_document.h"
#include "client/cli/bench_flags.h"
#include "client/cli/benchmark_run.h"
#include "client/cli/commands.h"
#include "client/cli/report_page.h"

ABSL_DECLARE_FLAG(std::string, output);

namespace ridgeline::cli {
namespace {

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat(path, " can't be written"));
}

absl::StatusOr<ReportContent> DescribeDevice(const client::Client& client, const v1::ListBenchmarksResponse& list) {
  ReportContent content;
  const absl::StatusOr<v1::Device> device = client.GetDevice();
  if (!device.ok()) return device.status();
  const absl::StatusOr<v1::Roofline> roofline = client.GetRoofline();
  if (!roofline.ok()) return roofline.status();
  content.device = *device;
  content.roofline = *roofline;
  content.time = absl::Now();
  for (const v1::BenchmarkDescription& description : list.benchmarks()) {
    if (!description.unsupported_reason().empty()) content.unsupported.push_back(description);
  }
  return content;
}

Document Written(const ReportContent& content, const std::string& path, std::int64_t bytes) {
  Document document;
  std::int64_t num_points = 0;
  document.rows = Rows{"benchmarks", {{"benchmark", "benchmark"}, {"points", "points"}, {"verdict", "the claim is"}}, {}};
  for (const BenchmarkRun& run : content.runs) {
    num_points += run.summary.points();
    document.rows->values.push_back(
        {run.description.name(), std::int64_t{run.summary.points()}, VerdictText(run.summary.verdict())});
  }
  document.sections.push_back({"Report",
                               {{"file", "file", path},
                                {"file_bytes", "size", {bytes, Unit::kBytes}},
                                {"device", "device", content.device.name()},
                                {"measured_points", "points", num_points}}});
  return document;
}

}  // namespace

absl::StatusOr<Result> RunReport(const client::Client& client) {
  const std::string path = absl::GetFlag(FLAGS_output).empty() ? "report.html" : absl::GetFlag(FLAGS_output);
  const absl::StatusOr<v1::ListBenchmarksResponse> list = client.ListBenchmarks();
  if (!list.ok()) return list.status();
  const absl::StatusOr<std::vector<SelectedBenchmark>> selected = SelectFromFlags(*list);
  if (!selected.ok()) return selected.status();
  absl::StatusOr<ReportContent> content = DescribeDevice(client, *list);
  if (!content.ok()) return content.status();
  // Known before minutes are spent on measuring.
  if (absl::Status status = WriteFile(path, ""); !status.ok()) return status;
  Result result;
  for (const SelectedBenchmark& benchmark : *selected) {
    absl::StatusOr<BenchmarkRun> run = RunBenchmark(client, benchmark.description, benchmark.request);
    if (!run.ok()) {
      result.interruption = run.status();
      break;
    }
    content->runs.push_back(*std::move(run));
  }
  if (content->runs.empty()) return result.interruption;
  const std::string page = RenderReport(*content);
  if (absl::Status status = WriteFile(path, page); !status.ok()) return status;
  result.document = Written(*content, path, static_cast<std::int64_t>(page.size()));
  return result;
}

}  // namespace ridgeline::cli
