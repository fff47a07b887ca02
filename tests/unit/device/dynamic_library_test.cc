#include "server/device/dynamic_library.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DynamicLibrary, AMissingLibraryIsNamed) {
  EXPECT_THAT(DynamicLibrary::Open("libridgeline-no-such.so.7"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("libridgeline-no-such.so.7")));
}

TEST(DynamicLibrary, FunctionsAreFoundAndCallable) {
  ASSERT_OK_AND_ASSIGN(const DynamicLibrary library, DynamicLibrary::Open("libm.so.6"));
  double (*cosine)(double) = nullptr;
  ASSERT_OK(library.Find("cos", cosine));
  EXPECT_EQ(cosine(0), 1);
}

TEST(DynamicLibrary, AMissingSymbolIsNamedWithItsLibrary) {
  ASSERT_OK_AND_ASSIGN(const DynamicLibrary library, DynamicLibrary::Open("libm.so.6"));
  double (*function)(double) = nullptr;
  EXPECT_THAT(library.Find("no_such_function", function),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("libm.so.6"), HasSubstr("no_such_function"))));
  EXPECT_EQ(function, nullptr);
}

}  // namespace
}  // namespace ridgeline::device
