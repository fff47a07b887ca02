#include "server/base/error.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace ridgeline::base {
namespace {

TEST(ErrorTest, InvalidFieldNamesFieldAndReason) {
  const absl::Status status = InvalidField("dense.key.shape", "has 2 dimensions; 4 are needed");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "has 2 dimensions; 4 are needed");
  EXPECT_EQ(ErrorReason(status), "INVALID_FIELD");
  EXPECT_EQ(ErrorField(status), "dense.key.shape");
  EXPECT_EQ(RetryDelay(status), std::nullopt);
}

TEST(ErrorTest, UnsupportedMayNameAField) {
  const absl::Status paged = Unsupported("paged", "this server keeps no KV caches");
  EXPECT_EQ(paged.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ErrorReason(paged), "UNSUPPORTED");
  EXPECT_EQ(ErrorField(paged), "paged");
  EXPECT_EQ(ErrorField(Unsupported("", "no such build")), std::nullopt);
}

TEST(ErrorTest, RetryDelayKeepsNanoseconds) {
  const absl::Status status = WithRetryDelay(absl::ResourceExhaustedError("full"), absl::Nanoseconds(1'500'000'001));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryDelay(status), absl::Nanoseconds(1'500'000'001));
}

TEST(ErrorTest, TheFirstReasonStays) {
  const absl::Status full = WithReason(absl::ResourceExhaustedError("full"), kReasonQueueFull);
  EXPECT_EQ(ErrorReason(full), "QUEUE_FULL");
  EXPECT_EQ(ErrorReason(WithReason(full, kReasonOutOfMemory)), "QUEUE_FULL");
  EXPECT_EQ(ErrorReason(WithReason(InvalidField("query", "is missing"), kReasonInternal)), "INVALID_FIELD");
}

TEST(ErrorTest, AStatusWithoutReasonGetsOneFromItsCode) {
  EXPECT_EQ(ErrorReason(absl::OkStatus()), "");
  EXPECT_EQ(ErrorReason(absl::InvalidArgumentError("")), "INVALID_FIELD");
  EXPECT_EQ(ErrorReason(absl::UnimplementedError("")), "UNSUPPORTED");
  EXPECT_EQ(ErrorReason(absl::ResourceExhaustedError("")), "OUT_OF_MEMORY");
  EXPECT_EQ(ErrorReason(absl::UnavailableError("")), "DEVICE_FAILED");
  EXPECT_EQ(ErrorReason(absl::DeadlineExceededError("")), "DEADLINE_EXCEEDED");
  EXPECT_EQ(ErrorReason(absl::CancelledError("")), "CANCELLED");
  EXPECT_EQ(ErrorReason(absl::UnknownError("")), "INTERNAL");
}

}  // namespace
}  // namespace ridgeline::base
