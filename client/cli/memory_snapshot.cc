// `ridgeline memory snapshot`
#include <fstream>
#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/arguments.h"
#include "client/cli/commands.h"

ABSL_DECLARE_FLAG(std::string, file);
ABSL_FLAG(std::int64_t, events, -1,
          "The latest events of the allocator that the snapshot tells; -1: all that the daemon keeps.");

namespace ridgeline::cli {

absl::StatusOr<Result> RunMemorySnapshot(const client::Client& client) {
  const std::string path = absl::GetFlag(FLAGS_file);
  if (path.empty()) return UsageError("the file is missing: memory snapshot FILE.pickle, or FILE.json");
  const bool is_json = absl::EndsWith(path, ".json");
  v1::GetMemorySnapshotRequest request;
  request.set_format(is_json ? v1::MEMORY_SNAPSHOT_FORMAT_JSON : v1::MEMORY_SNAPSHOT_FORMAT_PICKLE);
  if (const std::int64_t events = absl::GetFlag(FLAGS_events); events >= 0) request.set_max_events(events);
  const absl::StatusOr<v1::MemorySnapshot> snapshot = client.GetMemorySnapshot(request);
  if (!snapshot.ok()) return snapshot.status();
  std::ofstream file(path, std::ios::binary);
  file << snapshot->file();
  file.close();
  if (!file) return absl::UnknownError(absl::StrCat("writing ", path, " failed"));

  Result result;
  result.document.sections.push_back(
      {"Snapshot",
       {{"file", "file", path},
        {"snapshot_format", "format", is_json ? "json" : "pickle"},
        {"file_bytes", "size", {static_cast<std::int64_t>(snapshot->file().size()), Unit::kBytes}}}});
  if (!is_json) {
    result.document.notes.push_back(
        absl::StrCat("https://pytorch.org/memory_viz opens it, and so does `python -m torch.cuda._memory_viz "
                     "trace_plot ",
                     path, "`."));
  }
  return result;
}

}  // namespace ridgeline::cli
