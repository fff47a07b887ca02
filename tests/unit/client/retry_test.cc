#include "client/cpp/retry.h"

#include <string>

#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/wire_error.h"

namespace ridgeline::client {
namespace {

constexpr int kResourceExhausted = 8;
constexpr double kNoJitter = 0;
const absl::Duration kForever = absl::InfiniteDuration();

RetryPolicy Policy() { return {5, absl::Milliseconds(100), absl::Milliseconds(500), 2}; }

TEST(NextBackoffTest, DoublesUpToTheMaximum) {
  const absl::Status error = absl::UnavailableError("draining");
  EXPECT_EQ(NextBackoff(Policy(), 1, error, kForever, kNoJitter), absl::Milliseconds(50));
  EXPECT_EQ(NextBackoff(Policy(), 2, error, kForever, kNoJitter), absl::Milliseconds(100));
  EXPECT_EQ(NextBackoff(Policy(), 3, error, kForever, kNoJitter), absl::Milliseconds(200));
  EXPECT_EQ(NextBackoff(Policy(), 4, error, kForever, kNoJitter), absl::Milliseconds(250));
}

TEST(NextBackoffTest, JitterFillsTheUpperHalf) {
  EXPECT_EQ(NextBackoff(Policy(), 1, absl::UnavailableError(""), kForever, 0.5), absl::Milliseconds(75));
}

TEST(NextBackoffTest, GivesUpWhenTheAttemptsAreSpent) {
  EXPECT_EQ(NextBackoff(Policy(), 5, absl::UnavailableError(""), kForever, kNoJitter), std::nullopt);
}

TEST(NextBackoffTest, GivesUpWhenTheWaitWouldOutlastTheDeadline) {
  EXPECT_EQ(NextBackoff(Policy(), 1, absl::UnavailableError(""), absl::Milliseconds(50), kNoJitter), std::nullopt);
  EXPECT_NE(NextBackoff(Policy(), 1, absl::UnavailableError(""), absl::Milliseconds(51), kNoJitter), std::nullopt);
}

TEST(NextBackoffTest, RetriesOnlyWhatARetryCanHelp) {
  for (const absl::Status& error : {absl::InvalidArgumentError(""), absl::DeadlineExceededError(""), absl::CancelledError(""),
                                    absl::InternalError(""), absl::UnimplementedError(""), absl::ResourceExhaustedError("")}) {
    EXPECT_EQ(NextBackoff(Policy(), 1, error, kForever, kNoJitter), std::nullopt) << error;
  }
}

TEST(NextBackoffTest, NeverComesBackBeforeTheServerAsked) {
  const absl::Status full = ErrorFromWire(kResourceExhausted, "queue is full", WireDetails(RetryAfter(2000)));
  EXPECT_EQ(NextBackoff(Policy(), 1, full, kForever, kNoJitter), absl::Milliseconds(2050));
  EXPECT_EQ(NextBackoff(Policy(), 1, full, absl::Seconds(2), kNoJitter), std::nullopt);
}

}  // namespace
}  // namespace ridgeline::client
