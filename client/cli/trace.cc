// `ridgeline trace`
#include <cstdint>
#include <fstream>
#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/arguments.h"
#include "client/cli/commands.h"

ABSL_DECLARE_FLAG(absl::Duration, duration);
ABSL_DECLARE_FLAG(std::string, output);
ABSL_FLAG(std::int64_t, max_records, 0, "Calls, requests and launches to keep at most; 0: as many as the daemon thinks right.");

namespace ridgeline::cli {
namespace {

v1::CaptureTraceRequest RequestFromFlags() {
  v1::CaptureTraceRequest request;
  const std::int64_t nanoseconds = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_duration));
  request.mutable_duration()->set_seconds(nanoseconds / 1'000'000'000);
  request.mutable_duration()->set_nanos(static_cast<std::int32_t>(nanoseconds % 1'000'000'000));
  request.set_max_records(absl::GetFlag(FLAGS_max_records));
  return request;
}

Section SummarySection(const v1::TraceSummary& summary, std::int64_t file_bytes) {
  const double seconds =
      static_cast<double>(summary.duration().seconds()) + static_cast<double>(summary.duration().nanos()) * 1e-9;
  Value dropped(summary.dropped());
  if (summary.dropped() > 0) dropped.tone = Tone::kBad;
  return {"Captured",
          {{"duration_seconds", "for", {seconds, Unit::kSeconds}},
           {"calls", "calls", summary.calls()},
           {"requests", "requests computed", summary.requests()},
           {"launches", "launches", summary.launches()},
           {"device_spans", "copies and kernels", summary.device_spans()},
           {"dropped", "records without room", dropped},
           {"file_bytes", "file", {file_bytes, Unit::kBytes}}}};
}

}  // namespace

absl::StatusOr<Result> RunTrace(const client::Client& client) {
  const std::string path = absl::GetFlag(FLAGS_output);
  if (path.empty()) return UsageError("the file is missing: trace --output=trace.json");
  std::ofstream file(path, std::ios::binary);
  if (!file) return absl::InvalidArgumentError(absl::StrCat("cannot write ", path));
  std::int64_t file_bytes = 0;
  const absl::StatusOr<v1::TraceSummary> summary = client.CaptureTrace(RequestFromFlags(), [&](const std::string& json) {
    file << json;
    file_bytes += static_cast<std::int64_t>(json.size());
    return file ? absl::OkStatus() : absl::DataLossError(absl::StrCat("cannot write ", path));
  });
  if (!summary.ok()) return summary.status();
  file.close();
  if (!file) return absl::DataLossError(absl::StrCat("cannot write ", path));
  Result result;
  result.document.sections.push_back(SummarySection(*summary, file_bytes));
  result.document.notes.push_back(absl::StrCat("written to ", path, "; open it with ui.perfetto.dev or chrome://tracing"));
  return result;
}

}  // namespace ridgeline::cli
