// Copies between a device and host memory of every kind.
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/device_under_test.h"
#include "tests/unit/device/lane_io.h"

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;

class HostCopyTest : public DeviceTestOf<::testing::TestWithParam<HostMemoryKind>> {};

INSTANTIATE_TEST_SUITE_P(Kinds, HostCopyTest,
                         ::testing::Values(HostMemoryKind::kPageable, HostMemoryKind::kPinned, HostMemoryKind::kRegistered));

TEST_P(HostCopyTest, BytesArriveAndComeBackAndNoOthersDo) {
  Lane& lane = device_->lane(0);
  for (const std::int64_t size_bytes : {std::int64_t{1}, std::int64_t{4097}, std::int64_t{5} << 20}) {
    SCOPED_TRACE(size_bytes);
    ASSERT_OK_AND_ASSIGN(const std::shared_ptr<void> from, device_->AllocateHostMemory(GetParam(), size_bytes));
    ASSERT_OK_AND_ASSIGN(const std::shared_ptr<void> to, device_->AllocateHostMemory(GetParam(), size_bytes + 1));
    auto* const source = static_cast<std::uint8_t*>(from.get());
    auto* const destination = static_cast<std::uint8_t*>(to.get());
    for (std::int64_t i = 0; i < size_bytes; ++i) source[i] = static_cast<std::uint8_t>(i * 2654435761u >> 24);
    std::memset(destination, 0x55, size_bytes + 1);
    ASSERT_OK_AND_ASSIGN(Buffer buffer, lane.Allocate(size_bytes));
    ASSERT_OK(lane.CopyFromHost(buffer, source, size_bytes));
    ASSERT_OK(lane.CopyToHost(destination, buffer, size_bytes));
    ASSERT_OK(Complete(lane));
    EXPECT_EQ(std::memcmp(source, destination, size_bytes), 0);
    EXPECT_EQ(destination[size_bytes], 0x55);
  }
  EXPECT_EQ(device_->memory_stats().allocation_count, 0);
}

TEST_P(HostCopyTest, MoreThanThereIsIsRefused) {
  const auto memory = device_->AllocateHostMemory(GetParam(), std::numeric_limits<std::int64_t>::max() / 2);
  EXPECT_THAT(memory, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(base::ErrorReason(memory.status()), base::kReasonOutOfMemory);
}

}  // namespace
}  // namespace ridgeline::device
