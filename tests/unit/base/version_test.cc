#include "server/base/version.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::base {
namespace {

TEST(VersionTest, HasThreeNumbers) { EXPECT_THAT(std::string(Version()), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+")); }

}  // namespace
}  // namespace ridgeline::base
