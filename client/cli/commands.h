// The commands of `ridgeline`, as one table.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/document.h"
#include "client/cpp/client.h"

namespace ridgeline::cli {

struct Result {
  Document document;
  // Each is printed after the document and makes the exit status 1.
  std::string complaint;      // the work was done and judged, and is wrong
  absl::Status interruption;  // the work broke off; the document has what was done until then
};

struct Command {
  std::string name;                   // one word or two: "memory", "cache list"
  std::string summary;                // one line
  std::vector<std::string> examples;  // without the program's name
  std::vector<std::string> flags;     // those it reads, beside the ones of every command, in the order of its help
  absl::StatusOr<Result> (*run)(const client::Client& client);
  std::vector<std::string> operands = {};  // flags that the words after the command set, in this order
  bool last_operand_repeats = false;       // it takes all further words, joined by commas
};

absl::Span<const Command> Commands();
const Command* FindCommand(const std::string& name);  // null: there is none
// The commands of two words whose first this is, e.g. "cache"; empty for other words.
std::vector<const Command*> CommandsOf(const std::string& first_word);

absl::StatusOr<Result> RunAttend(const client::Client& client);
absl::StatusOr<Result> RunCompare(const client::Client& client);
absl::StatusOr<Result> RunFuse(const client::Client& client);
absl::StatusOr<Result> RunBench(const client::Client& client);
absl::StatusOr<Result> RunReport(const client::Client& client);
absl::StatusOr<Result> RunLoad(const client::Client& client);
absl::StatusOr<Result> RunCacheCreate(const client::Client& client);
absl::StatusOr<Result> RunCacheList(const client::Client& client);
absl::StatusOr<Result> RunCacheShow(const client::Client& client);
absl::StatusOr<Result> RunCacheRenew(const client::Client& client);
absl::StatusOr<Result> RunCacheDelete(const client::Client& client);
absl::StatusOr<Result> RunCacheFork(const client::Client& client);
absl::StatusOr<Result> RunCacheTruncate(const client::Client& client);
absl::StatusOr<Result> RunCacheExport(const client::Client& client);
absl::StatusOr<Result> RunCacheImport(const client::Client& client);
absl::StatusOr<Result> RunDevice(const client::Client& client);
absl::StatusOr<Result> RunMemory(const client::Client& client);
absl::StatusOr<Result> RunMemorySnapshot(const client::Client& client);
absl::StatusOr<Result> RunPlan(const client::Client& client);
absl::StatusOr<Result> RunTrace(const client::Client& client);
absl::StatusOr<Result> RunHealth(const client::Client& client);

}  // namespace ridgeline::cli
