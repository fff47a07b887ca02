#include "client/cli/load_trace.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/arguments.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::cli {
namespace {

using support::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class LoadTraceTest : public ::testing::Test {
 protected:
  ~LoadTraceTest() override { std::remove(path_.c_str()); }
  absl::StatusOr<std::vector<TracedSession>> Read(const std::string& content) const {
    std::ofstream(path_) << content;
    return ReadSessionTrace(path_);
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/ridgeline_session_trace_", getpid());
};

TEST_F(LoadTraceTest, LinesAreSessions) {
  ASSERT_OK_AND_ASSIGN(const std::vector<TracedSession> sessions,
                       Read("# seconds, prefill, decode\n0,512,16\n\n 0.25 2048\t0 \r\n0.25, 1, 16777216"));
  ASSERT_EQ(sessions.size(), 3);
  EXPECT_EQ(sessions[0].prefill_tokens, 512);
  EXPECT_EQ(sessions[0].decode_tokens, 16);
  EXPECT_EQ(sessions[1].arrival_seconds, 0.25);
  EXPECT_EQ(sessions[1].decode_tokens, 0);
  EXPECT_EQ(sessions[2].decode_tokens, 16777216);
}

TEST_F(LoadTraceTest, ABadLineIsNamed) {
  for (const std::string line : {"abc", "1,2", "1,2,3,4", "-1,2,3", "nan,2,3", "inf,2,3", "86401,2,3", "1,0,3", "1,-2,3",
                                 "1,2,-3", "1,2.5,3", "1,16777217,3", "1,2,16777217"}) {
    const absl::Status status = Read(absl::StrCat("# sessions\n0,1,1\n", line, "\n")).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("--trace: line 3 of "), HasSubstr(absl::StrCat("is '", line, "'")))));
    EXPECT_TRUE(IsUsageError(status));
  }
  EXPECT_THAT(Read("2,1,1\n1,1,1\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("line 2"), HasSubstr("before the line above"))));
  EXPECT_THAT(Read("# nothing\n\n"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("holds no session")));
}

TEST_F(LoadTraceTest, WhatCannotBeReadIsNotFound) {
  EXPECT_THAT(ReadSessionTrace(path_), StatusIs(absl::StatusCode::kNotFound, HasSubstr("No such file")));
  EXPECT_THAT(ReadSessionTrace(::testing::TempDir()), StatusIs(absl::StatusCode::kNotFound, HasSubstr("Is a directory")));
}

}  // namespace
}  // namespace ridgeline::cli
