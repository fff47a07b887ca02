#include "server/base/log.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::base {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::string LineWith(const std::string& value) { return FormatLogLine(LogLevel::kInfo, "test", {{"value", value}}); }

TEST(LogTest, OneLineOfKeysAndValues) {
  EXPECT_EQ(FormatLogLine(LogLevel::kInfo, "listening", {{"service", "grpc"}, {"address", "127.0.0.1:50051"}}),
            "level=info msg=listening service=grpc address=127.0.0.1:50051");
  EXPECT_EQ(FormatLogLine(LogLevel::kWarning, "cache file not written", {{"bytes", 42}}),
            "level=warning msg=\"cache file not written\" bytes=42");
  EXPECT_EQ(FormatLogLine(LogLevel::kError, "lost", {}), "level=error msg=lost");
}

TEST(LogTest, ValuesCannotEndTheLineOrForgeAField) {
  EXPECT_THAT(LineWith("a\nlevel=error"), EndsWith(R"( value="a\nlevel=error")"));
  EXPECT_THAT(LineWith("a\rb"), EndsWith(R"( value="a\rb")"));
  EXPECT_THAT(LineWith("a b"), EndsWith(R"( value="a b")"));
  EXPECT_THAT(LineWith("x=\"y\""), EndsWith(R"( value="x=\"y\"")"));
  EXPECT_THAT(LineWith("back\\slash"), EndsWith(R"( value="back\\slash")"));
  EXPECT_THAT(LineWith(std::string("nul\0esc\x1b[31m", 12)), EndsWith(R"( value="nul\x00\x65sc\x1b[31m")"));
  EXPECT_THAT(LineWith(""), EndsWith(R"( value="")"));
}

TEST(LogTest, LineSeparatorsOfUnicodeAreEscaped) {
  EXPECT_THAT(LineWith("a\xe2\x80\xa8z"), EndsWith(R"( value="a\xe2\x80\xa8z")"));  // U+2028
  EXPECT_THAT(LineWith("a\xc2\x85z"), EndsWith(R"( value="a\xc2\x85z")"));          // NEL
}

TEST(LogTest, LongValuesAreCut) {
  EXPECT_THAT(LineWith(std::string(512, 'a')), Not(HasSubstr("...")));
  EXPECT_EQ(LineWith(std::string(100'000, 'a')), LineWith(std::string(512, 'a')) + "...");
  EXPECT_LT(LineWith(std::string(100'000, '\n')).size(), 1100);
}

std::string JsonWith(const std::string& value) {
  return FormatLogLine(LogLevel::kInfo, "test", {{"value", value}}, LogFormat::kJson);
}

TEST(LogTest, OrOneJsonObject) {
  EXPECT_EQ(FormatLogLine(LogLevel::kWarning, "cache file not written", {{"bytes", 42}}, LogFormat::kJson),
            R"({"level":"warning","msg":"cache file not written","bytes":"42"})");
  EXPECT_EQ(FormatLogLine(LogLevel::kError, "lost", {}, LogFormat::kJson), R"({"level":"error","msg":"lost"})");
}

TEST(LogTest, JsonStaysJsonWhateverAValueIs) {
  EXPECT_THAT(JsonWith("a\n\"b\\"), EndsWith(R"("value":"a\u000a\"b\\"})"));
  EXPECT_THAT(JsonWith("\xff\xe2\x80\xa8"), EndsWith(R"("value":"\u00ff\u00e2\u0080\u00a8"})"));
  EXPECT_THAT(JsonWith(std::string(100'000, 'a')), EndsWith("aaa...\"}"));
}

TEST(LogTest, LevelsAndFormatsHaveNames) {
  EXPECT_EQ(ParseLogLevel("debug"), LogLevel::kDebug);
  EXPECT_EQ(ParseLogLevel("error"), LogLevel::kError);
  EXPECT_EQ(ParseLogLevel("loud"), std::nullopt);
  EXPECT_EQ(ParseLogFormat("json"), LogFormat::kJson);
  EXPECT_EQ(ParseLogFormat("xml"), std::nullopt);
}

TEST(LogTest, WritesWhatItIsConfiguredTo) {
  ::testing::internal::CaptureStderr();
  Log(LogLevel::kDebug, "left out");
  ConfigureLog(LogLevel::kDebug, LogFormat::kJson);
  EXPECT_TRUE(IsLogged(LogLevel::kDebug));
  Log(LogLevel::kDebug, "request", {{"code", "OK"}});
  ConfigureLog(LogLevel::kInfo, LogFormat::kText);
  EXPECT_FALSE(IsLogged(LogLevel::kDebug));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              MatchesRegex("\\{\"time\":\"[^\"]*Z\",\"level\":\"debug\",\"msg\":\"request\",\"code\":\"OK\"\\}\n"));
}

TEST(LogTest, WritesOneLineToStandardError) {
  ::testing::internal::CaptureStderr();
  Log(LogLevel::kInfo, "draining", {{"queued", 3}});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              MatchesRegex("time=[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9.]+Z level=info msg=draining queued=3\n"));
}

}  // namespace
}  // namespace ridgeline::base
