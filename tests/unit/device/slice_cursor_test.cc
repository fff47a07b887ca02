#include "server/device/slice_cursor.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::device {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> TextOf(const std::vector<HostSlice>& slices) {
  std::vector<std::string> texts;
  for (const HostSlice& slice : slices) texts.emplace_back(static_cast<const char*>(slice.data), slice.size_bytes);
  return texts;
}

TEST(SliceCursor, PiecesEndAnywhereAndSkipEmptySlices) {
  const std::vector<HostSlice> slices = {{"abc", 3}, {nullptr, 0}, {"de", 2}, {"fghi", 4}, {nullptr, 0}};
  SliceCursor cursor(slices);
  EXPECT_THAT(TextOf(cursor.Take(2)), ElementsAre("ab"));
  EXPECT_THAT(cursor.Take(0), IsEmpty());
  EXPECT_THAT(TextOf(cursor.Take(1)), ElementsAre("c"));
  EXPECT_THAT(TextOf(cursor.Take(4)), ElementsAre("de", "fg"));
  EXPECT_THAT(TextOf(cursor.Take(2)), ElementsAre("hi"));
}

}  // namespace
}  // namespace ridgeline::device
