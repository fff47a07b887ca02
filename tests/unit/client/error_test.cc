#include "client/cpp/error.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/wire_error.h"

namespace ridgeline::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kInvalidArgument = 3;
constexpr int kResourceExhausted = 8;

TEST(ErrorTest, FieldAndReasonAreReadable) {
  const absl::Status error = ErrorFromWire(
      kInvalidArgument, "head_dim is 7; a multiple of 8 is allowed",
      WireDetails(BadField("query.shape", "head_dim is 7; a multiple of 8 is allowed"), InfoWithReason("INVALID_FIELD")));
  EXPECT_EQ(ErrorString(error), "INVALID_ARGUMENT: query.shape: head_dim is 7; a multiple of 8 is allowed [INVALID_FIELD]");
  EXPECT_EQ(ErrorReason(error), "INVALID_FIELD");
  EXPECT_THAT(ViolatedFields(error), ElementsAre("query.shape"));
  EXPECT_EQ(RetryDelay(error), std::nullopt);
}

TEST(ErrorTest, AFieldThatBeginsItsDescriptionIsNamedOnce) {
  const std::string message = "axes.size has '0'; allowed are integers from 16 to 16384";
  for (const std::string& told : {message, absl::StrCat("axes.size: ", message)}) {
    EXPECT_EQ(ErrorString(ErrorFromWire(kInvalidArgument, told, WireDetails(BadField("axes.size", message)))),
              absl::StrCat("INVALID_ARGUMENT: ", message));
  }
  EXPECT_EQ(ErrorString(ErrorFromWire(kInvalidArgument, "", WireDetails(BadField("axes.s", message)))),
            absl::StrCat("INVALID_ARGUMENT: axes.s: ", message));
}

TEST(ErrorTest, WhatTheServerSaysIsSaidOnce) {
  const std::string details = WireDetails(BadField("query", "is missing"));
  EXPECT_EQ(ErrorString(ErrorFromWire(kInvalidArgument, "query: is missing", details)), "INVALID_ARGUMENT: query: is missing");
  EXPECT_EQ(ErrorString(ErrorFromWire(kInvalidArgument, "", details)), "INVALID_ARGUMENT: query: is missing");
  EXPECT_EQ(ErrorString(ErrorFromWire(kInvalidArgument, "2 fields are wrong", details)),
            "INVALID_ARGUMENT: 2 fields are wrong; query: is missing");
}

TEST(ErrorTest, EveryViolationIsNamed) {
  google::rpc::BadRequest bad_request = BadField("query.shape", "rank is 2");
  bad_request.MergeFrom(BadField("options.scale", ""));
  const absl::Status error = ErrorFromWire(kInvalidArgument, "", WireDetails(bad_request));
  EXPECT_EQ(ErrorString(error), "INVALID_ARGUMENT: query.shape: rank is 2; options.scale");
  EXPECT_THAT(ViolatedFields(error), ElementsAre("query.shape", "options.scale"));
}

TEST(ErrorTest, RetryDelayIsNeverNegative) {
  EXPECT_EQ(RetryDelay(ErrorFromWire(kResourceExhausted, "full", WireDetails(RetryAfter(1250)))), absl::Milliseconds(1250));
  EXPECT_EQ(RetryDelay(ErrorFromWire(kResourceExhausted, "full", WireDetails(RetryAfter(-1250)))), absl::ZeroDuration());
}

TEST(ErrorTest, WithoutDetailsTheMessageStands) {
  for (const std::string& details : {std::string(), std::string("\xff\xff garbage")}) {
    const absl::Status error = ErrorFromWire(kResourceExhausted, "queue is full", details);
    EXPECT_EQ(ErrorString(error), "RESOURCE_EXHAUSTED: queue is full");
    EXPECT_EQ(ErrorReason(error), "");
    EXPECT_THAT(ViolatedFields(error), IsEmpty());
    EXPECT_EQ(RetryDelay(error), std::nullopt);
  }
  EXPECT_TRUE(ErrorFromWire(0, "", "").ok());
}

}  // namespace
}  // namespace ridgeline::client
