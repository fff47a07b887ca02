#include "server/api/crc32c.h"

#include <cstddef>
#include <string>

#include "gtest/gtest.h"

namespace ridgeline::api {
namespace {

std::uint32_t Crc(const std::string& bytes) { return ExtendCrc32c(0, bytes.data(), bytes.size()); }

// Every byte once and more, at no rhythm of eight.
std::string SomeBytes(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 131 + i / 7);
  return bytes;
}

TEST(Crc32cTest, KnownValues) {
  EXPECT_EQ(Crc(""), 0u);
  EXPECT_EQ(Crc("123456789"), 0xe3069283u);
  // RFC 3720, appendix B.4.
  EXPECT_EQ(Crc(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32cTest, TheInstructionAndTheTableAgree) {
  const std::string bytes = SomeBytes(300);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t size = 0; begin + size <= bytes.size(); ++size) {
      const char* data = bytes.data() + begin;
      ASSERT_EQ(ExtendCrc32c(7, data, size), ExtendCrc32cPortably(7, data, size)) << begin << " " << size;
    }
  }
}

TEST(Crc32cTest, PiecesGiveTheChecksumOfTheWhole) {
  const std::string bytes = SomeBytes(100);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_EQ(ExtendCrc32c(Crc(bytes.substr(0, cut)), bytes.data() + cut, bytes.size() - cut), Crc(bytes));
  }
}

TEST(Crc32cTest, AnyBitThatChangesIsSeen) {
  std::string bytes = SomeBytes(64);
  const std::uint32_t right = Crc(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(Crc(bytes), right);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  }
}

}  // namespace
}  // namespace ridgeline::api
