#include "server/base/status_macros.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace ridgeline::base {
namespace {

absl::Status AddIfOk(const absl::Status& status, int& calls) {
  RIDGELINE_RETURN_IF_ERROR(status);
  ++calls;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<int>> Doubled(absl::StatusOr<std::unique_ptr<int>> first, absl::StatusOr<int> second) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::unique_ptr<int> value, std::move(first));
  RIDGELINE_ASSIGN_OR_RETURN(int factor, second);
  return std::make_unique<int>(*value * factor);
}

TEST(StatusMacrosTest, ReturnIfErrorReturnsTheError) {
  int calls = 0;
  EXPECT_TRUE(AddIfOk(absl::OkStatus(), calls).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(AddIfOk(absl::AbortedError("late"), calls), absl::AbortedError("late"));
  EXPECT_EQ(calls, 1);
}

TEST(StatusMacrosTest, AssignOrReturnMovesTheValueOrReturnsTheError) {
  EXPECT_EQ(**Doubled(std::make_unique<int>(21), 2), 42);
  EXPECT_EQ(Doubled(absl::NotFoundError("first"), 2).status(), absl::NotFoundError("first"));
  EXPECT_EQ(Doubled(std::make_unique<int>(21), absl::NotFoundError("second")).status(), absl::NotFoundError("second"));
}

}  // namespace
}  // namespace ridgeline::base
