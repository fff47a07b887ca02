// `ridgeline`: the command line over the client library, and an example of its use.
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "client/cli/arguments.h"
#include "client/cli/command_line.h"
#include "client/cli/commands.h"
#include "client/cli/common_flags.h"
#include "client/cli/help.h"
#include "client/cli/terminal.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"

namespace ridgeline::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

int PrintUsageError(const absl::Status& error) {
  std::cerr << "ridgeline: " << error.message() << "\nSee `ridgeline help`.\n";
  return kWrongUsage;
}

// What to do about an error, where that is known.
std::string Hint(const absl::Status& error, const std::string& address) {
  const bool unreachable = absl::IsUnavailable(error) && client::ErrorReason(error).empty();
  if (unreachable) {
    return absl::StrCat("Is the daemon running at ", address, "? `ridgelined --listen=", address, "` starts it.\n");
  }
  if (absl::IsDeadlineExceeded(error)) {
    return absl::StrCat("--timeout is ", absl::FormatDuration(absl::GetFlag(FLAGS_timeout)), "; a longer one may help.\n");
  }
  return "";
}

int PrintError(const absl::Status& error, const std::string& address) {
  if (IsUsageError(error)) return PrintUsageError(error);
  std::cerr << "ridgeline: " << absl::StrReplaceAll(client::ErrorString(error), {{"\n", " "}}) << "\n" << Hint(error, address);
  return kFailed;
}

std::string Render(const Document& document, const std::string& format) {
  if (format == "json") return RenderJson(document);
  if (format == "csv") return RenderCsv(document);
  return RenderTable(document, StandardOutputTakesColour());
}

int RunCommand(const Command& command) {
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format != "table" && format != "json" && format != "csv") {
    return PrintUsageError(UsageError(absl::StrCat("--format is '", format, "'; table, json and csv are allowed")));
  }
  const std::string address = absl::GetFlag(FLAGS_address);
  client::ClientOptions options;
  options.timeout = absl::GetFlag(FLAGS_timeout);
  options.name = absl::GetFlag(FLAGS_client_name);
  options.session = absl::GetFlag(FLAGS_session);
  options.tls = ReadTlsFlags();
  // As OpenTelemetry's tools pass it on to programs that they start.
  if (const char* const traceparent = std::getenv("TRACEPARENT"); traceparent != nullptr) options.traceparent = traceparent;
  const absl::StatusOr<client::Client> client = client::Client::Create(address, options);
  if (!client.ok()) return PrintUsageError(client.status());

  const absl::StatusOr<Result> result = command.run(*client);
  if (!result.ok()) return PrintError(result.status(), address);
  std::cout << Render(result->document, format) << std::flush;
  if (!std::cout) return PrintError(absl::UnknownError("writing the result failed"), address);
  if (!result->interruption.ok()) return PrintError(result->interruption, address);
  if (result->complaint.empty()) return EXIT_SUCCESS;
  std::cerr << "ridgeline: " << result->complaint << "\n";
  return kFailed;
}

// The command that the line begins with, of two words or one; null: there is none.
const Command* FindCommandOf(const std::vector<std::string>& words) {
  const Command* const command = words.size() > 1 ? FindCommand(absl::StrCat(words[0], " ", words[1])) : nullptr;
  return command != nullptr ? command : FindCommand(words[0]);
}

absl::Status NoSuchCommand(const std::vector<std::string>& words) {
  const bool in_group = !CommandsOf(words[0]).empty();
  if (in_group && words.size() == 1) {
    return UsageError(absl::StrCat(words[0], " needs a second word; `ridgeline help ", words[0], "` lists them"));
  }
  std::vector<std::string> names = {"help"};
  for (const Command& command : Commands()) names.push_back(command.name);
  const std::string name = in_group ? absl::StrCat(words[0], " ", words[1]) : words[0];
  const std::optional<std::string> meant = ClosestMatch(name, names);
  return UsageError(
      absl::StrCat("there is no command ", name, meant.has_value() ? absl::StrCat("; did you mean ", *meant, "?") : ""));
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments == std::vector<std::string>{"--version"}) {
    std::cout << "ridgeline " RIDGELINE_VERSION "\n";
    return EXIT_SUCCESS;
  }
  const absl::StatusOr<CommandLine> command_line = ParseCommandLine(arguments);
  if (!command_line.ok()) return PrintUsageError(command_line.status());
  const std::vector<std::string>& words = command_line->words;
  if (words.empty()) {
    (command_line->help ? std::cout : std::cerr) << OverviewText();
    return command_line->help ? EXIT_SUCCESS : kWrongUsage;
  }
  const Command* const command = FindCommandOf(words);
  if (command == nullptr && command_line->help && words.size() == 1 && !CommandsOf(words[0]).empty()) {
    std::cout << GroupText(words[0]);
    return EXIT_SUCCESS;
  }
  if (command == nullptr) return PrintUsageError(NoSuchCommand(words));
  if (command_line->help) {
    std::cout << CommandHelpText(*command);
    return EXIT_SUCCESS;
  }
  if (absl::Status status = SetOperands(*command, words); !status.ok()) return PrintUsageError(status);
  if (absl::Status status = CheckFlagsBelongTo(*command, *command_line); !status.ok()) return PrintUsageError(status);
  return RunCommand(*command);
}

}  // namespace
}  // namespace ridgeline::cli

int main(int argc, char** argv) {
  // Each of gRPC's threads looks at the sockets of its own calls. By default all look at one set of them, and each event has
  // one thread wake the next: 128 decode loops cost this program 63 µs of CPU time a step in place of 35
  // (tests/gpu/RESULTS.md).
  setenv("GRPC_POLL_STRATEGY", "poll", /*overwrite=*/0);
  return ridgeline::cli::Main({argv + 1, argv + argc});
}
