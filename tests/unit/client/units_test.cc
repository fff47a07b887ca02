#include "client/cli/units.h"

#include <limits>

#include "gtest/gtest.h"

namespace ridgeline::cli {
namespace {

TEST(UnitsTest, Bytes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.00 KiB");
  EXPECT_EQ(FormatBytes(1536 * 1024), "1.50 MiB");
  EXPECT_EQ(FormatBytes((std::int64_t{1} << 30) - 1), "1.00 GiB");  // not "1024 MiB"
  EXPECT_EQ(FormatBytes(std::numeric_limits<std::int64_t>::max()), "8.00 EiB");
  EXPECT_EQ(FormatBytes(-2048), "-2.00 KiB");
}

TEST(UnitsTest, Seconds) {
  EXPECT_EQ(FormatSeconds(0), "0 s");
  EXPECT_EQ(FormatSeconds(1.234e-3), "1.23 ms");
  EXPECT_EQ(FormatSeconds(12.34e-6), "12.3 µs");
  EXPECT_EQ(FormatSeconds(99.96e-6), "100 µs");
  EXPECT_EQ(FormatSeconds(999.6e-6), "1.00 ms");
  EXPECT_EQ(FormatSeconds(3725), "3725 s");
}

TEST(UnitsTest, Rates) {
  EXPECT_EQ(FormatFlopsPerSecond(213.4e9), "213 GFLOP/s");
  EXPECT_EQ(FormatBytesPerSecond(22.44e9), "22.4 GB/s");
  EXPECT_EQ(FormatPerSecond(0.25), "0.25 /s");
  EXPECT_EQ(FormatPerSecond(12'345), "12.3 k/s");
  EXPECT_EQ(FormatFlops(8.59e9), "8.59 GFLOP");
  EXPECT_EQ(FormatFlops(0), "0.00 FLOP");
}

TEST(UnitsTest, Numbers) {
  EXPECT_EQ(FormatFraction(0.7134), "71.3 %");
  EXPECT_EQ(FormatNumber(0), "0");
  EXPECT_EQ(FormatNumber(47.123), "47.1");
  EXPECT_EQ(FormatNumber(2.384e-7), "2.38e-07");
  EXPECT_EQ(FormatNumber(1234567), "1.23e+06");
  EXPECT_EQ(FormatNumber(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1048576), "1,048,576");
  EXPECT_EQ(FormatCount(-100000), "-100,000");
  EXPECT_EQ(FormatCount(-100), "-100");
}

}  // namespace
}  // namespace ridgeline::cli
