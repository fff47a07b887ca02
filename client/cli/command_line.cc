#include "client/cli/command_line.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cli/arguments.h"
#include "client/cli/common_flags.h"

namespace ridgeline::cli {
namespace {

bool Contains(const std::vector<std::string>& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The flags of this program; those of libraries stay theirs.
std::vector<std::string> KnownFlags() {
  std::vector<std::string> known = CommonFlags();
  for (const Command& command : Commands()) known.insert(known.end(), command.flags.begin(), command.flags.end());
  return known;
}

// "--name=value" without its dashes; nothing for a word, and for a negative number, which is a value.
std::optional<absl::string_view> WithoutDashes(absl::string_view argument) {
  if (!absl::ConsumePrefix(&argument, "-")) return std::nullopt;
  absl::ConsumePrefix(&argument, "-");
  if (argument.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(argument[0]))) return std::nullopt;
  return argument;
}

// One flag as it was given.
struct GivenFlag {
  std::string name;
  std::optional<std::string> value;  // nothing: it is the next argument
};

absl::StatusOr<GivenFlag> ReadFlag(absl::string_view flag, const std::vector<std::string>& known) {
  const std::size_t equals = flag.find('=');
  const absl::string_view name = flag.substr(0, equals);
  if (Contains(known, name)) {
    GivenFlag given{std::string(name), std::nullopt};
    if (equals != absl::string_view::npos) {
      given.value = std::string(flag.substr(equals + 1));
    } else if (absl::FindCommandLineFlag(name)->IsOfType<bool>()) {
      given.value = "true";
    }
    return given;
  }
  const absl::string_view negated = absl::StripPrefix(name, "no");
  if (equals == absl::string_view::npos && Contains(known, negated) && absl::FindCommandLineFlag(negated)->IsOfType<bool>()) {
    return GivenFlag{std::string(negated), "false"};
  }
  const std::optional<std::string> meant = ClosestMatch(name, known);
  return UsageError(
      absl::StrCat("there is no flag --", name, meant.has_value() ? absl::StrCat("; did you mean --", *meant, "?") : ""));
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const std::string> arguments) {
  const std::vector<std::string> known = KnownFlags();
  CommandLine command_line;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::optional<absl::string_view> flag = WithoutDashes(arguments[i]);
    if (arguments[i] == "help" || flag == "help" || flag == "h") {
      command_line.help = true;
      continue;
    }
    if (!flag.has_value()) {
      command_line.words.push_back(arguments[i]);
      continue;
    }
    absl::StatusOr<GivenFlag> given = ReadFlag(*flag, known);
    if (!given.ok()) return given.status();
    if (!given->value.has_value()) {
      if (i + 1 == arguments.size()) return UsageError(absl::StrCat("--", given->name, " needs a value"));
      given->value = arguments[++i];
    }
    std::string error;
    if (!absl::FindCommandLineFlag(given->name)->ParseFrom(*given->value, &error)) {
      return UsageError(error);
    }
    command_line.flags.push_back(given->name);
  }
  return command_line;
}

absl::Status SetOperands(const Command& command, absl::Span<const std::string> words) {
  const std::size_t num_own = absl::StrContains(command.name, ' ') ? 2 : 1;
  for (std::size_t i = num_own; i < words.size(); ++i) {
    if (command.last_operand_repeats && i - num_own + 1 == command.operands.size()) {
      std::string error;
      const std::string all = absl::StrJoin(words.subspan(i), ",");
      return absl::FindCommandLineFlag(command.operands.back())->ParseFrom(all, &error) ? absl::OkStatus() : UsageError(error);
    }
    if (i - num_own == command.operands.size()) return UsageError(absl::StrCat("'", words[i], "' is one word too many"));
    std::string error;
    if (!absl::FindCommandLineFlag(command.operands[i - num_own])->ParseFrom(words[i], &error)) return UsageError(error);
  }
  return absl::OkStatus();
}

absl::Status CheckFlagsBelongTo(const Command& command, const CommandLine& command_line) {
  for (const std::string& flag : command_line.flags) {
    if (Contains(CommonFlags(), flag) || Contains(command.flags, flag)) continue;
    for (const Command& other : Commands()) {
      if (!Contains(other.flags, flag)) continue;
      return UsageError(absl::StrCat("--", flag, " is a flag of `", other.name, "`, not of `", command.name, "`"));
    }
  }
  return absl::OkStatus();
}

}  // namespace ridgeline::cli
