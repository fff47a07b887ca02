// The device of whichever device_under_test_*.cc the program links: one suite judges every device.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "server/device/device.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::device {

// Three lanes. FAILED_PRECONDITION, with the reason, where the machine has no such device.
absl::StatusOr<std::unique_ptr<Device>> CreateDeviceUnderTest(std::int64_t memory_limit_bytes);

// A suite on that device, skipped with the reason where there is none. `Base` is ::testing::Test or a TestWithParam.
template <typename Base>
class DeviceTestOf : public Base {
 protected:
  static constexpr std::int64_t kMemoryLimitBytes = std::int64_t{256} << 20;

  void SetUp() override {
    auto device = CreateDeviceUnderTest(kMemoryLimitBytes);
    if (absl::IsFailedPrecondition(device.status())) GTEST_SKIP() << device.status().message();
    ASSERT_OK(device);
    device_ = *std::move(device);
  }

  std::unique_ptr<Device> device_;
};

using DeviceTest = DeviceTestOf<::testing::Test>;

}  // namespace ridgeline::device
