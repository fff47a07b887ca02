#include "server/device/gather_copy.h"

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "server/device/thread_pool.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::device {
namespace {

class GatherCopyTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { ASSERT_OK_AND_ASSIGN(pool_, ThreadPool::Create(GetParam())); }

  // Slices of these lengths, each with memory of its own; joined and compared.
  void ExpectJoins(const std::vector<std::int64_t>& lengths) {
    std::vector<std::vector<std::uint8_t>> pieces;
    std::vector<std::uint8_t> want;
    for (const std::int64_t length : lengths) {
      std::vector<std::uint8_t>& piece = pieces.emplace_back(length);
      for (std::uint8_t& byte : piece) byte = static_cast<std::uint8_t>(random_());
      want.insert(want.end(), piece.begin(), piece.end());
    }
    std::vector<HostSlice> slices;
    for (const auto& piece : pieces) slices.push_back({piece.data(), static_cast<std::int64_t>(piece.size())});
    constexpr std::uint8_t kGuard = 0xa5;
    std::vector<std::uint8_t> got(want.size() + 64, kGuard);
    LaneExecutor executor(*pool_);
    GatherCopy(slices, got.data(), executor);
    want.resize(got.size(), kGuard);
    EXPECT_EQ(got, want);
  }

  std::mt19937 random_{1};
  std::unique_ptr<ThreadPool> pool_;
};

TEST_P(GatherCopyTest, NothingAndEmptySlices) {
  ExpectJoins({});
  ExpectJoins({0});
  ExpectJoins({0, 1, 0, 0, 2, 0});
}

TEST_P(GatherCopyTest, OddSizedSlices) {
  ExpectJoins({1});
  ExpectJoins({1, 3, 5, 7, 4093, 2, 65537});
  ExpectJoins({(256 << 10) - 1, 1, 1, 256 << 10, (256 << 10) + 1});
  ExpectJoins({3 << 20, 1, 2 << 20});
}

TEST_P(GatherCopyTest, ManySlicesOfRandomSizes) {
  for (int round = 0; round < 5; ++round) {
    std::vector<std::int64_t> lengths(1000);
    for (std::int64_t& length : lengths) length = random_() % 3000;
    ExpectJoins(lengths);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, GatherCopyTest, ::testing::Values(1, 3));

}  // namespace
}  // namespace ridgeline::device
