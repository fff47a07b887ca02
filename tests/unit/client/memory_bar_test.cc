#include "client/cli/memory_bar.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::cli {
namespace {

using ::testing::ElementsAre;

std::string Repeated(int times, const std::string& text) {
  std::string repeated;
  for (int i = 0; i < times; ++i) repeated += text;
  return repeated;
}

v1::MemoryStats Stats(std::int64_t allocated, std::int64_t reserved, std::int64_t peak_reserved, std::int64_t limit) {
  v1::MemoryStats stats;
  stats.set_allocated_bytes(allocated);
  stats.set_reserved_bytes(reserved);
  stats.set_peak_reserved_bytes(peak_reserved);
  stats.set_limit_bytes(limit);
  return stats;
}

TEST(MemoryBarTest, IsDrawnToScale) {
  EXPECT_THAT(MemoryBar(Stats(100, 300, 500, 600)),
              ElementsAre("  " + Repeated(10, "█") + Repeated(20, "▓") + Repeated(19, "·") + "|" + Repeated(10, "·"),
                          "  █ allocated 100 B   ▓ reserved 300 B   | peak 500 B   · limit 600 B"));
}

TEST(MemoryBarTest, NothingIsEmptyAndLittleIsSeen) {
  EXPECT_EQ(MemoryBar(Stats(0, 0, 0, 0))[0], "  " + Repeated(60, "·"));
  EXPECT_EQ(MemoryBar(Stats(1, 1, 1, 1'000'000))[0], "  █" + Repeated(59, "·"));
  EXPECT_EQ(MemoryBar(Stats(600, 600, 600, 600))[0], "  " + Repeated(60, "█"));
}

}  // namespace
}  // namespace ridgeline::cli
