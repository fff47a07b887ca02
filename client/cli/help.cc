#include "client/cli/help.h"

#include <cstddef>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/cli/common_flags.h"

namespace ridgeline::cli {
namespace {

constexpr std::size_t kHelpWidth = 90;
constexpr std::size_t kFlagIndent = 6;

// "  --name=default" and, below it, what the flag does.
std::string FlagText(const std::string& name) {
  const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  std::string text = absl::StrCat("  --", name);
  const std::string default_value = flag->DefaultValue();
  absl::StrAppend(&text, flag->IsOfType<bool>() || default_value.empty() ? "" : absl::StrCat("=", default_value), "\n");
  for (const std::string& line : WrapText(flag->Help(), kHelpWidth - kFlagIndent)) {
    absl::StrAppend(&text, std::string(kFlagIndent, ' '), line, "\n");
  }
  return text;
}

constexpr int kCommandWidth = 14;  // "cache truncate"
constexpr int kUsageWidth = 30;    // with its operands

std::string CommandLineText(int width, const std::string& name, const std::string& summary) {
  return absl::StrFormat("  %-*s %s\n", width, name, summary);
}

// "cache export [NAME] [FILE]"
std::string UsageText(const Command& command) {
  std::string text = command.name;
  for (const std::string& operand : command.operands) absl::StrAppend(&text, " [", absl::AsciiStrToUpper(operand), "]");
  if (command.last_operand_repeats) absl::StrAppend(&text, "...");
  return text;
}

}  // namespace

std::vector<std::string> WrapText(absl::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (lines.empty() || lines.back().size() + 1 + word.size() > width) {
      lines.emplace_back(word);
    } else {
      absl::StrAppend(&lines.back(), " ", word);
    }
  }
  return lines;
}

std::string OverviewText() {
  std::string text =
      "ridgeline: attention over gRPC, measured against the roofline\n\n"
      "  ridgeline [--address=127.0.0.1:50051] COMMAND [flags]\n\nCommands\n";
  for (const Command& command : Commands())
    absl::StrAppend(&text, CommandLineText(kCommandWidth, command.name, command.summary));
  absl::StrAppend(&text, CommandLineText(kCommandWidth, "help", "this page; with a command, its examples and flags"),
                  "\nFlags of every command\n");
  for (const std::string& name : CommonFlags()) absl::StrAppend(&text, FlagText(name));
  absl::StrAppend(&text, "\nThe exit status is 0 on success, 1 when the work failed, 2 when the command line was wrong.\n");
  return text;
}

std::string GroupText(const std::string& first_word) {
  std::string text;
  for (const Command* command : CommandsOf(first_word)) {
    absl::StrAppend(&text, CommandLineText(kUsageWidth, UsageText(*command), command->summary));
  }
  absl::StrAppend(&text, "\n`ridgeline help ", first_word, " COMMAND` has examples and flags.\n");
  return text;
}

std::string CommandHelpText(const Command& command) {
  std::string text = absl::StrCat("ridgeline ", UsageText(command), ": ", command.summary, "\n\n");
  for (const std::string& example : command.examples) absl::StrAppend(&text, "  ridgeline ", example, "\n");
  if (!command.flags.empty()) absl::StrAppend(&text, "\nFlags\n");
  for (const std::string& name : command.flags) absl::StrAppend(&text, FlagText(name));
  absl::StrAppend(&text, "\n--address, --format, --timeout, --client_name and --session: see `ridgeline help`.\n");
  return text;
}

}  // namespace ridgeline::cli
