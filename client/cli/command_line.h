// Reads the command line into the Abseil flags that the commands define. Abseil's own parser would end the program itself, with
// the status of failed work and no word about what was meant.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/commands.h"

namespace ridgeline::cli {

struct CommandLine {
  std::vector<std::string> words;  // the command, and what else is no flag
  std::vector<std::string> flags;  // names of those given
  bool help = false;               // --help, -h, or the word help
};

// Takes --name=value, --name value, and for booleans --name and --noname; sets the flags. A usage error for an unknown flag,
// with the one that was probably meant, and for a value that the flag refuses.
absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const std::string> arguments);

// Sets the flags that the words behind the command's own stand for. A usage error for one word too many, and for a value that
// the flag refuses.
absl::Status SetOperands(const Command& command, absl::Span<const std::string> words);

// A usage error for a given flag that neither `command` nor every command reads: it would be ignored without a word.
absl::Status CheckFlagsBelongTo(const Command& command, const CommandLine& command_line);

}  // namespace ridgeline::cli
