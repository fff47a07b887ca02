#include "tests/support/status_matchers.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"

namespace ridgeline::support {
namespace {

using ::testing::AnyOf;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(StatusMatchersTest, TellOkFromError) {
  const absl::StatusOr<int> error = absl::NotFoundError("no such cache");
  EXPECT_OK(absl::OkStatus());
  EXPECT_OK(absl::StatusOr<int>(3));
  EXPECT_THAT(error, Not(IsOk()));
  EXPECT_NONFATAL_FAILURE(EXPECT_OK(absl::NotFoundError("no such cache")), "which is NOT_FOUND: no such cache");
}

TEST(StatusMatchersTest, CompareCodeAndMessage) {
  const absl::Status status = absl::InvalidArgumentError("head_dim is 7");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "head_dim is 7"));
  EXPECT_THAT(status, StatusIs(AnyOf(absl::StatusCode::kInvalidArgument, absl::StatusCode::kInternal), HasSubstr("7")));
  EXPECT_THAT(absl::StatusOr<int>(status), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(status, Not(StatusIs(absl::StatusCode::kInternal)));
  EXPECT_THAT(status, Not(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("8"))));
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal)), "INVALID_ARGUMENT: head_dim is 7");
}

TEST(StatusMatchersTest, LookAtTheValue) {
  const absl::StatusOr<int> three = 3;
  EXPECT_THAT(three, IsOkAndHolds(3));
  EXPECT_THAT(three, IsOkAndHolds(Gt(2)));
  EXPECT_THAT(three, Not(IsOkAndHolds(4)));
  EXPECT_THAT(absl::StatusOr<int>(absl::CancelledError()), Not(IsOkAndHolds(3)));
  EXPECT_THAT(absl::StatusOr<std::string>("abc"), IsOkAndHolds(HasSubstr("b")));
}

TEST(StatusMatchersTest, AssignMovesTheValueOut) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<int> owner, absl::StatusOr<std::unique_ptr<int>>(std::make_unique<int>(7)));
  EXPECT_EQ(*owner, 7);
}

}  // namespace
}  // namespace ridgeline::support
