#include "client/cli/benchmark_run.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/progress.h"

namespace ridgeline::cli {
namespace {

std::string ProgressText(const v1::BenchmarkDescription& description, const v1::Progress& progress) {
  if (progress.waiting()) return absl::StrCat(description.name(), ": waiting for the device …");
  return absl::StrCat(description.name(), ": ", progress.points_done() + 1, " of ", progress.points_total(), ", ",
                      AxisText(description, progress.axis_values()), " …");
}

}  // namespace

std::string AxisText(const v1::BenchmarkDescription& description,
                     const google::protobuf::Map<std::string, std::string>& values) {
  std::vector<std::string> parts;
  for (const v1::BenchmarkAxis& axis : description.axes()) {
    const auto found = values.find(axis.name());
    if (found != values.end()) parts.push_back(absl::StrCat(axis.name(), "=", found->second));
  }
  return absl::StrJoin(parts, ", ");
}

absl::StatusOr<BenchmarkRun> RunBenchmark(const client::Client& client, const v1::BenchmarkDescription& description,
                                          const v1::BenchmarkRequest& request) {
  BenchmarkRun run{.description = description, .points = {}, .summary = {}};
  Progress progress;
  const absl::Status status = client.Benchmark(request, [&](v1::BenchmarkResponse event) {
    if (event.has_progress()) progress.Show(ProgressText(description, event.progress()));
    if (event.has_point()) run.points.push_back(std::move(*event.mutable_point()));
    if (event.has_summary()) run.summary = std::move(*event.mutable_summary());
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return run;
}

}  // namespace ridgeline::cli
