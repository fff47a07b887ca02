// Matchers for absl::Status and absl::StatusOr, with the names that newer Abseil gives them.
//
//   EXPECT_OK(queue.Push(request));
//   EXPECT_THAT(Parse(bytes), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("head_dim is 7")));
//   EXPECT_THAT(CountTokens(tensor), IsOkAndHolds(Gt(0)));
#pragma once

#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#define EXPECT_OK(expression) EXPECT_THAT(expression, ::ridgeline::support::IsOk())
#define ASSERT_OK(expression) ASSERT_THAT(expression, ::ridgeline::support::IsOk())

// ASSERT_OK_AND_ASSIGN(auto buffer, allocator.Allocate(64));
#define ASSERT_OK_AND_ASSIGN(lhs, expression) \
  RIDGELINE_ASSERT_OK_AND_ASSIGN_IMPL(RIDGELINE_ASSERT_OK_AND_ASSIGN_NAME(__LINE__), lhs, expression)
#define RIDGELINE_ASSERT_OK_AND_ASSIGN_NAME(line) RIDGELINE_ASSERT_OK_AND_ASSIGN_CONCAT(status_or_, line)
#define RIDGELINE_ASSERT_OK_AND_ASSIGN_CONCAT(prefix, line) prefix##line
#define RIDGELINE_ASSERT_OK_AND_ASSIGN_IMPL(status_or, lhs, expression) \
  auto status_or = (expression);                                        \
  ASSERT_THAT(status_or, ::ridgeline::support::IsOk());                 \
  lhs = *std::move(status_or)

namespace ridgeline::support {

inline const absl::Status& AsStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& AsStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

// Matches an OK status, or a StatusOr that holds a value.
MATCHER(IsOk, negation ? "isn't OK" : "is OK") {
  *result_listener << "which is " << AsStatus(arg).ToString();
  return AsStatus(arg).ok();
}

// Matches a status, or the status of a StatusOr, by its code and its message; both may be matchers.
MATCHER_P2(StatusIs, code, message,
           "has a code that " + ::testing::DescribeMatcher<absl::StatusCode>(code, negation) + " and a message that " +
               ::testing::DescribeMatcher<std::string>(message, negation)) {
  const absl::Status& status = AsStatus(arg);
  *result_listener << "which is " << status.ToString();
  return ::testing::Matches(::testing::SafeMatcherCast<absl::StatusCode>(code))(status.code()) &&
         ::testing::Matches(::testing::SafeMatcherCast<std::string>(message))(std::string(status.message()));
}

template <typename Code>
auto StatusIs(Code code) {
  return StatusIs(code, ::testing::_);
}

// Matches a StatusOr that holds a value matching `matcher`.
MATCHER_P(IsOkAndHolds, matcher, negation ? "isn't OK, or holds another value" : "is OK and holds the value") {
  using Value = typename std::remove_cvref_t<decltype(arg)>::value_type;
  if (!arg.ok()) {
    *result_listener << "which is " << arg.status().ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(::testing::SafeMatcherCast<const Value&>(matcher), *arg, result_listener);
}

}  // namespace ridgeline::support
