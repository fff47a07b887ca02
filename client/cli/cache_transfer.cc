// `ridgeline cache export` and `ridgeline cache import`
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/arguments.h"
#include "client/cli/cache_document.h"
#include "client/cli/cache_flags.h"
#include "client/cli/commands.h"
#include "client/cli/progress.h"
#include "client/cli/units.h"
#include "client/cpp/sequence_file.h"

ABSL_FLAG(std::string, file, "", "The exported sequence.");

namespace ridgeline::cli {
namespace {

absl::StatusOr<std::string> FileFromFlags() {
  const std::string path = absl::GetFlag(FLAGS_file);
  if (path.empty()) return UsageError("the file is missing: cache export chat/a FILE");
  return path;
}

}  // namespace

absl::StatusOr<Result> RunCacheExport(const client::Client& client) {
  const absl::StatusOr<CacheName> name = SequenceFromFlags();
  if (!name.ok()) return name.status();
  const absl::StatusOr<std::string> path = FileFromFlags();
  if (!path.ok()) return path.status();
  absl::StatusOr<client::SequenceFileWriter> writer = client::SequenceFileWriter::Create(*path);
  if (!writer.ok()) return writer.status();

  v1::SequenceHeader header;
  std::int64_t num_chunks = 0;
  Progress progress;
  absl::Status status = client.ExportSequence(name->sequence(), [&](const v1::SequencePart& part) {
    if (part.has_header()) header = part.header();
    if (part.has_trailer()) num_chunks = part.trailer().chunk_count();
    progress.Show(absl::StrCat("exporting: ", FormatBytes(writer->size_bytes())));
    return writer->Write(part);
  });
  if (status.ok()) status = writer->Close();
  if (!status.ok()) return status;

  Result result;
  result.document.sections.push_back(
      {"Exported",
       {{"name", "name", name->sequence()},
        {"format_version", "format version", std::int64_t{header.format_version()}},
        {"layers", "layers", std::int64_t{header.layers()}},
        {"lengths", "tokens of each layer", std::vector<std::int64_t>(header.lengths().begin(), header.lengths().end())},
        {"chunk_count", "chunks", num_chunks},
        {"file_bytes", "file", {writer->size_bytes(), Unit::kBytes}}}});
  result.document.notes.push_back(absl::StrCat("written to ", *path));
  return result;
}

absl::StatusOr<Result> RunCacheImport(const client::Client& client) {
  const absl::StatusOr<CacheName> name = NameFromFlags();
  if (!name.ok()) return name.status();
  const absl::StatusOr<std::string> path = FileFromFlags();
  if (!path.ok()) return path.status();
  absl::StatusOr<client::SequenceFileReader> reader = client::SequenceFileReader::Open(*path);
  if (!reader.ok()) return reader.status();
  Progress progress;
  std::int64_t num_parts = 0;
  const absl::StatusOr<v1::Sequence> sequence = client.ImportSequence(name->cache(), name->sequence_id, [&] {
    progress.Show(absl::StrCat("importing: ", num_parts++, " parts"));
    return reader->Next();
  });
  if (!sequence.ok()) return sequence.status();
  Result result;
  result.document.sections.push_back(SequenceSection(*sequence, absl::Now()));
  return result;
}

}  // namespace ridgeline::cli
