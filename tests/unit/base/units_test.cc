#include "server/base/units.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace ridgeline::base {
namespace {

TEST(UnitsTest, FormatsBytes) {
  EXPECT_EQ(FormatBytes(0), "0 bytes");
  EXPECT_EQ(FormatBytes(1023), "1023 bytes");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB (1024 bytes)");
  EXPECT_EQ(FormatBytes(std::int64_t{3} << 29), "1.5 GiB (1610612736 bytes)");
  EXPECT_EQ(FormatBytes(std::numeric_limits<std::int64_t>::max()), "8.0 EiB (9223372036854775807 bytes)");
}

}  // namespace
}  // namespace ridgeline::base
