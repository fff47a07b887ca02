#include "server/device/buffer.h"

#include <cstdint>
#include <memory>

#include "gtest/gtest.h"

namespace ridgeline::device {
namespace {

class Letters final : public HostBuffer {
 public:
  explicit Letters(bool& gone) : gone_(gone) {}
  ~Letters() override { gone_ = true; }

  const void* data() const override { return "abcdef"; }
  std::int64_t size_bytes() const override { return 6; }

 private:
  bool& gone_;
};

TEST(HostBufferPartTest, PartsKeepTheWholeAlive) {
  bool gone = false;
  auto whole = std::make_shared<const Letters>(gone);
  auto first = std::make_unique<const HostBufferPart>(whole, 0, 2);
  auto second = std::make_unique<const HostBufferPart>(whole, 2, 4);
  whole = nullptr;
  EXPECT_EQ(first->size_bytes(), 2);
  EXPECT_EQ(*static_cast<const char*>(first->data()), 'a');
  first = nullptr;
  EXPECT_FALSE(gone);
  EXPECT_EQ(second->size_bytes(), 4);
  EXPECT_EQ(*static_cast<const char*>(second->data()), 'c');
  second = nullptr;
  EXPECT_TRUE(gone);
}

}  // namespace
}  // namespace ridgeline::device
