#include "tests/support/guarded_buffer.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "gtest/gtest.h"

namespace ridgeline::support {
namespace {

TEST(GuardedBufferTest, BeginsAtTheOffsetFullOfPoison) {
  const GuardedBuffer buffer(100, 2);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 2u);
  EXPECT_EQ(buffer.size_bytes(), 100);
  for (const std::byte byte : buffer.bytes()) EXPECT_EQ(byte, GuardedBuffer::kPoison);
}

TEST(GuardedBufferTest, WritesInsideLeaveTheGuardsWhole) {
  GuardedBuffer buffer(33);
  for (std::byte& byte : buffer.bytes()) byte = std::byte{0};
  EXPECT_TRUE(buffer.guards_whole());
  buffer.Poison();
  EXPECT_EQ(buffer.bytes()[32], GuardedBuffer::kPoison);
}

TEST(GuardedBufferTest, MovesWithItsGuards) {
  GuardedBuffer buffer(8);
  std::byte* const data = buffer.data();
  GuardedBuffer moved(std::move(buffer));
  EXPECT_EQ(moved.data(), data);
  GuardedBuffer assigned;
  assigned = std::move(moved);
  EXPECT_EQ(assigned.data(), data);
  EXPECT_TRUE(assigned.guards_whole());
}

TEST(GuardedBufferTest, FindsWritesOnEitherSide) {
  for (const std::int64_t place : {-1, 263}) {  // the sanitizer's granules of 8 bytes leave these to us
    const GuardedBuffer buffer(8, 4);
    volatile std::byte* const data = buffer.data();
    data[place] = std::byte{0};
    EXPECT_FALSE(buffer.guards_whole()) << place;
  }
}

TEST(GuardedBufferDeathTest, StopsOrFindsWritesOnEitherSide) {
  for (const std::int64_t place : {-256, -9, 8, 255}) {
    const GuardedBuffer buffer(8, 4);
    volatile std::byte* const data = buffer.data();
    if (GuardedBuffer::IsWatched()) {
      EXPECT_DEATH(data[place] = std::byte{0}, "use-after-poison") << place;
    } else {
      data[place] = std::byte{0};
      EXPECT_FALSE(buffer.guards_whole()) << place;
    }
  }
}

}  // namespace
}  // namespace ridgeline::support
