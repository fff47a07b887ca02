#include "client/cli/command_line.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/arguments.h"
#include "client/cli/common_flags.h"
#include "client/cli/help.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

ABSL_DECLARE_FLAG(bool, causal);
ABSL_DECLARE_FLAG(std::optional<double>, scale);
ABSL_DECLARE_FLAG(std::uint64_t, seed);
ABSL_DECLARE_FLAG(std::string, name);
ABSL_DECLARE_FLAG(std::int64_t, length);

namespace ridgeline::cli {
namespace {

using support::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CommandLineTest : public ::testing::Test {
 protected:
  static absl::StatusOr<CommandLine> Parse(const std::vector<std::string>& arguments) { return ParseCommandLine(arguments); }

 private:
  absl::FlagSaver saved_flags_;
};

TEST_F(CommandLineTest, FlagsStandAnywhereInBothForms) {
  ASSERT_OK_AND_ASSIGN(const CommandLine line,
                       Parse({"--address", "unix:/a.sock", "attend", "--seed=7", "--causal", "--scale", "-1.5"}));
  EXPECT_THAT(line.words, ElementsAre("attend"));
  EXPECT_THAT(line.flags, ElementsAre("address", "seed", "causal", "scale"));
  EXPECT_FALSE(line.help);
  EXPECT_EQ(absl::GetFlag(FLAGS_address), "unix:/a.sock");
  EXPECT_EQ(absl::GetFlag(FLAGS_seed), 7);
  EXPECT_TRUE(absl::GetFlag(FLAGS_causal));
  EXPECT_EQ(absl::GetFlag(FLAGS_scale), -1.5);
  ASSERT_OK(Parse({"--nocausal", "--scale="}));
  EXPECT_FALSE(absl::GetFlag(FLAGS_causal));
  EXPECT_EQ(absl::GetFlag(FLAGS_scale), std::nullopt);
}

TEST_F(CommandLineTest, HelpIsHeardEverywhere) {
  for (const std::string text : {"help", "--help", "-h", "attend --help", "help attend", "attend --causal -h"}) {
    EXPECT_TRUE(Parse(absl::StrSplit(text, ' '))->help) << text;
  }
}

TEST_F(CommandLineTest, MistakesAreUsageErrors) {
  const struct {
    std::vector<std::string> arguments;
    std::string message;
  } kCases[] = {
      {{"attend", "--rndom=1"}, "no flag --rndom; did you mean --random?"},
      {{"attend", "--zzzzzz"}, "no flag --zzzzzz"},
      {{"attend", "--noseed"}, "no flag --noseed"},
      {{"attend", "--seed"}, "--seed needs a value"},
      {{"attend", "--seed=abc"}, "Illegal value 'abc' specified for flag 'seed'"},
      {{"attend", "--causal=perhaps"}, "causal"},
      {{"attend", "--flagfile=/etc/passwd"}, "no flag --flagfile"},
  };
  for (const auto& [arguments, message] : kCases) {
    const absl::Status status = Parse(arguments).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
    EXPECT_TRUE(IsUsageError(status));
  }
}

TEST_F(CommandLineTest, WordsAfterTheCommandSetItsOperands) {
  const Command& command = *FindCommand("cache truncate");
  ASSERT_OK(SetOperands(command, {"cache", "truncate", "chat/a", "7"}));
  EXPECT_EQ(absl::GetFlag(FLAGS_name), "chat/a");
  EXPECT_EQ(absl::GetFlag(FLAGS_length), 7);
  EXPECT_THAT(SetOperands(command, {"cache", "truncate", "chat/a", "7", "more"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'more' is one word too many")));
  EXPECT_TRUE(IsUsageError(SetOperands(command, {"cache", "truncate", "chat/a", "seven"})));
  EXPECT_TRUE(IsUsageError(SetOperands(*FindCommand("device"), {"device", "more"})));
}

TEST_F(CommandLineTest, EveryOperandIsAFlagOfItsCommand) {
  for (const Command& command : Commands()) {
    for (const std::string& operand : command.operands)
      EXPECT_THAT(command.flags, ::testing::Contains(operand)) << command.name;
  }
}

TEST_F(CommandLineTest, FlagsOfOtherCommandsAreRefused) {
  EXPECT_OK(CheckFlagsBelongTo(*FindCommand("attend"), {{"attend"}, {"address", "causal"}}));
  EXPECT_THAT(CheckFlagsBelongTo(*FindCommand("attend"), {{"attend"}, {"lengths"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "--lengths is a flag of `compare`, not of `attend`"));
}

// A name in a command's list that no ABSL_FLAG defines would crash its help.
TEST_F(CommandLineTest, EveryListedFlagExists) {
  for (const std::string& name : CommonFlags()) EXPECT_NE(absl::FindCommandLineFlag(name), nullptr) << name;
  for (const Command& command : Commands()) {
    for (const std::string& name : command.flags) EXPECT_NE(absl::FindCommandLineFlag(name), nullptr) << name;
  }
}

// The examples of the help are command lines of the command that they illustrate.
TEST_F(CommandLineTest, ExamplesParse) {
  for (const Command& command : Commands()) {
    for (const std::string& example : command.examples) {
      ASSERT_OK_AND_ASSIGN(const CommandLine line, Parse(absl::StrSplit(example, ' ')));
      EXPECT_THAT(absl::StrJoin(line.words, " "), StartsWith(command.name));
      EXPECT_OK(SetOperands(command, line.words));
      EXPECT_OK(CheckFlagsBelongTo(command, line));
    }
  }
}

TEST(HelpTest, ShowsCommandsFlagsAndDefaults) {
  const std::string overview = OverviewText();
  for (const Command& command : Commands()) EXPECT_THAT(overview, HasSubstr(command.summary));
  EXPECT_THAT(overview, HasSubstr("\n  --address=127.0.0.1:50051\n      The daemon: host:port or unix:/path/to.sock.\n"));
  EXPECT_THAT(CommandHelpText(*FindCommand("attend")), HasSubstr("\n  --causal\n      Hide keys"));
}

TEST(HelpTest, WrapsAtSpaces) {
  EXPECT_THAT(WrapText("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(WrapText("incomprehensibilities of it", 5), ElementsAre("incomprehensibilities", "of it"));
  EXPECT_THAT(WrapText("", 5), ElementsAre());
}

}  // namespace
}  // namespace ridgeline::cli
