// What `ridgeline help` says.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/cli/commands.h"

namespace ridgeline::cli {

// The commands, one line each, and the common flags.
std::string OverviewText();

// The commands of two words that begin with this one, one line each.
std::string GroupText(const std::string& first_word);

// One command: examples, then its flags with their defaults.
std::string CommandHelpText(const Command& command);

// Splits text at spaces into lines of at most `width` characters; a longer word has a line of its own.
std::vector<std::string> WrapText(absl::string_view text, std::size_t width);

}  // namespace ridgeline::cli
