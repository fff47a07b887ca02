#include "client/cli/segment_picture.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

void AddBlock(v1::MemorySegment& segment, std::int64_t size_bytes, v1::MemoryBlockState state) {
  v1::MemoryBlock& block = *segment.add_blocks();
  block.set_size_bytes(size_bytes);
  block.set_state(state);
  segment.set_size_bytes(segment.size_bytes() + size_bytes);
}

std::string Repeated(int times, const std::string& text) {
  std::string repeated;
  for (int i = 0; i < times; ++i) repeated += text;
  return repeated;
}

TEST(SegmentPictureTest, NoSegmentsNoPicture) { EXPECT_THAT(SegmentPicture({}), IsEmpty()); }

TEST(SegmentPictureTest, BlocksAreDrawnToScale) {
  v1::MemorySnapshot snapshot;
  v1::MemorySegment& large = *snapshot.add_segments();
  large.set_address(0x2000000);
  large.set_pool(v1::MEMORY_POOL_LARGE);
  large.set_growing(true);
  AddBlock(large, 1200, v1::MEMORY_BLOCK_STATE_ALLOCATED);
  AddBlock(large, 1200, v1::MEMORY_BLOCK_STATE_FREE);
  AddBlock(large, 2400, v1::MEMORY_BLOCK_STATE_AWAITING_FREE);
  v1::MemorySegment& small = *snapshot.add_segments();
  small.set_address(0x1000000);
  small.set_pool(v1::MEMORY_POOL_SMALL);
  AddBlock(small, 50, v1::MEMORY_BLOCK_STATE_ALLOCATED);
  AddBlock(small, 150, v1::MEMORY_BLOCK_STATE_FREE);
  const std::vector<std::string> lines = SegmentPicture(snapshot);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[0], HasSubstr("0x1000000  small fixed"));
  EXPECT_THAT(lines[0], EndsWith("  ▒·"));
  EXPECT_THAT(lines[1], HasSubstr("0x2000000  large growing"));
  EXPECT_THAT(lines[1], EndsWith("  " + Repeated(12, "█") + Repeated(12, "·") + Repeated(24, "~")));
}

TEST(SegmentPictureTest, SmallSegmentsBeyondTheTwelveAreCounted) {
  v1::MemorySnapshot snapshot;
  for (int i = 1; i <= 15; ++i) {
    v1::MemorySegment& segment = *snapshot.add_segments();
    segment.set_address(i);
    AddBlock(segment, i * 1000, v1::MEMORY_BLOCK_STATE_FREE);
  }
  const std::vector<std::string> lines = SegmentPicture(snapshot);
  ASSERT_THAT(lines, SizeIs(14));
  EXPECT_EQ(lines[12], "  and 3 smaller segments");
}

}  // namespace
}  // namespace ridgeline::cli
