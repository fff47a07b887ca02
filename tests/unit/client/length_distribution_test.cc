#include "client/cli/length_distribution.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/arguments.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::cli {
namespace {

using support::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int64_t> Draw(LengthDistribution distribution, int count) {
  std::mt19937_64 random(7);
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < count; ++i) lengths.push_back(distribution.Draw(random));
  return lengths;
}

class TraceTest : public ::testing::Test {
 protected:
  ~TraceTest() override { std::remove(path_.c_str()); }
  absl::StatusOr<LengthDistribution> Read(const std::string& content) const {
    std::ofstream(path_) << content;
    return LengthDistribution::Parse("context", absl::StrCat("trace:", path_));
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/ridgeline_trace_", getpid());
};

TEST(LengthDistributionTest, FixedIsFixed) {
  ASSERT_OK_AND_ASSIGN(const LengthDistribution fixed, LengthDistribution::Parse("context", "fixed:4096"));
  EXPECT_THAT(Draw(fixed, 3), ElementsAre(4096, 4096, 4096));
}

TEST(LengthDistributionTest, UniformReachesBothEndsAndNothingBeyond) {
  ASSERT_OK_AND_ASSIGN(const LengthDistribution uniform, LengthDistribution::Parse("context", "uniform:3,5"));
  std::vector<int> num_seen(10);
  for (const std::int64_t length : Draw(uniform, 3000)) ++num_seen.at(length);
  // 1000 each are expected, with a standard deviation of 26.
  for (const int length : {3, 4, 5}) EXPECT_NEAR(num_seen[length], 1000, 150) << length;
  EXPECT_EQ(num_seen[3] + num_seen[4] + num_seen[5], 3000);
}

TEST(LengthDistributionTest, LogNormalHasItsMedianAndSpread) {
  ASSERT_OK_AND_ASSIGN(const LengthDistribution log_normal, LengthDistribution::Parse("context", "lognormal:2000,0.5"));
  constexpr int kCount = 10'000;
  double sum = 0;
  double sum_of_squares = 0;
  for (const std::int64_t length : Draw(log_normal, kCount)) {
    const double deviation = std::log(static_cast<double>(length) / 2000);
    sum += deviation;
    sum_of_squares += deviation * deviation;
  }
  // Five standard errors: sigma / sqrt(n) of the mean, sigma / sqrt(2n) of sigma.
  EXPECT_NEAR(sum / kCount, 0, 5 * 0.5 / std::sqrt(kCount));
  EXPECT_NEAR(std::sqrt(sum_of_squares / kCount), 0.5, 5 * 0.5 / std::sqrt(2.0 * kCount));
}

TEST(LengthDistributionTest, LogNormalStaysWithinWhatALoadAsksFor) {
  ASSERT_OK_AND_ASSIGN(const LengthDistribution low, LengthDistribution::Parse("context", "lognormal:1,4"));
  ASSERT_OK_AND_ASSIGN(const LengthDistribution high,
                       LengthDistribution::Parse("context", absl::StrCat("lognormal:", kMaxContextTokens, ",4")));
  bool reached_one = false;
  bool reached_most = false;
  for (const std::int64_t length : Draw(low, 1000)) {
    ASSERT_GE(length, 1);
    reached_one |= length == 1;
  }
  for (const std::int64_t length : Draw(high, 1000)) {
    ASSERT_LE(length, kMaxContextTokens);
    reached_most |= length == kMaxContextTokens;
  }
  EXPECT_TRUE(reached_one && reached_most);
}

TEST(LengthDistributionTest, MistakesSayWhatIsAllowed) {
  const struct {
    std::string text;
    std::string message;
  } kCases[] = {
      {"", "fixed:N, uniform:A,B, lognormal:MEDIAN,SIGMA and trace:FILE"},
      {"4096", "fixed:N, uniform:A,B"},
      {"normal:1,2", "fixed:N, uniform:A,B"},
      {"fixed:", "fixed takes one length; lengths from 1 to 16,777,216"},
      {"fixed:0", "fixed takes one length"},
      {"fixed:16777217", "fixed takes one length"},
      {"fixed:1,2", "fixed takes one length"},
      {"uniform:1", "uniform takes the shortest and the longest"},
      {"uniform:5,4", "uniform takes the shortest and the longest"},
      {"uniform:0,4", "uniform takes the shortest and the longest"},
      {"uniform:1,2,3", "uniform takes the shortest and the longest"},
      {"lognormal:100", "lognormal takes the median"},
      {"lognormal:0.5,1", "lognormal takes the median"},
      {"lognormal:nan,1", "lognormal takes the median"},
      {"lognormal:100,nan", "lognormal takes the median"},
      {"lognormal:100,-1", "0 to 4"},
      {"lognormal:100,4.5", "0 to 4"},
  };
  for (const auto& [text, message] : kCases) {
    const absl::Status status = LengthDistribution::Parse("context", text).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr(absl::StrCat("--context is '", text, "'")), HasSubstr(message))));
    EXPECT_TRUE(IsUsageError(status)) << text;
  }
}

TEST_F(TraceTest, ComesInOrderAndFromTheStartAgain) {
  ASSERT_OK_AND_ASSIGN(const LengthDistribution trace, Read("# of a Tuesday\n512\n\n 7 \r\n16777216"));
  EXPECT_THAT(Draw(trace, 5), ElementsAre(512, 7, 16777216, 512, 7));
}

TEST_F(TraceTest, ABadLineIsNamed) {
  for (const std::string line : {"abc", "0", "-5", "1.5", "16777217", "5 6"}) {
    const absl::Status status = Read(absl::StrCat("# lengths\n512\n", line, "\n")).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("--context is 'trace:"), HasSubstr(absl::StrCat("line 3 is '", line, "'")))));
    EXPECT_TRUE(IsUsageError(status));
  }
  EXPECT_THAT(Read("# nothing\n\n"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("holds no length")));
}

TEST_F(TraceTest, WhatCannotBeReadIsNotFound) {
  EXPECT_THAT(LengthDistribution::Parse("context", absl::StrCat("trace:", path_)),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("No such file")));
  EXPECT_THAT(LengthDistribution::Parse("context", absl::StrCat("trace:", ::testing::TempDir())),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("Is a directory")));
}

}  // namespace
}  // namespace ridgeline::cli
