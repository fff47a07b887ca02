#include "server/device/select_device.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr CpuDeviceOptions kSmallCpu = {.num_lanes = 2, .num_threads = 1, .memory_limit_bytes = 64 << 20};

// Stands for a GPU: all that selection sees of one is that it could be made.
CudaFactory Working(int& ordinal) {
  return [&ordinal](const CudaDeviceOptions& options) {
    ordinal = options.ordinal;
    return CreateCpuDevice({.num_lanes = options.num_lanes, .num_threads = 1, .memory_limit_bytes = 64 << 20});
  };
}

CudaFactory Failing(absl::Status status) {
  return [status](const CudaDeviceOptions&) { return status; };
}

TEST(SelectDevice, CpuAsksNoGpu) {
  ASSERT_OK_AND_ASSIGN(const SelectedDevice selected,
                       SelectDevice(DeviceRequest::kCpu, kSmallCpu, {}, Failing(absl::InternalError("asked"))));
  EXPECT_EQ(selected.device->info().type, DeviceType::kCpu);
  EXPECT_THAT(selected.reason, HasSubstr("--device=cpu"));
}

TEST(SelectDevice, AGpuByNumberOrItsError) {
  int ordinal = -1;
  ASSERT_OK_AND_ASSIGN(const SelectedDevice selected,
                       SelectDevice(DeviceRequest::kCuda, kSmallCpu, {.ordinal = 3, .num_lanes = 1}, Working(ordinal)));
  EXPECT_EQ(ordinal, 3);
  EXPECT_EQ(selected.device->num_lanes(), 1);
  EXPECT_THAT(selected.reason, HasSubstr("--device=cuda:3"));
  EXPECT_THAT(SelectDevice(DeviceRequest::kCuda, kSmallCpu, {}, Failing(absl::FailedPreconditionError("no driver"))),
              StatusIs(absl::StatusCode::kFailedPrecondition, "no driver"));
}

TEST(SelectDevice, AutoTakesTheFirstGpu) {
  int ordinal = -1;
  ASSERT_OK_AND_ASSIGN(const SelectedDevice selected,
                       SelectDevice(DeviceRequest::kAuto, kSmallCpu, {.num_lanes = 1}, Working(ordinal)));
  EXPECT_EQ(ordinal, 0);
  EXPECT_EQ(selected.device->num_lanes(), 1);
  EXPECT_THAT(selected.reason, HasSubstr("the first GPU"));
}

TEST(SelectDevice, AutoFallsBackToTheCpuAndSaysWhy) {
  ASSERT_OK_AND_ASSIGN(
      const SelectedDevice selected,
      SelectDevice(DeviceRequest::kAuto, kSmallCpu, {}, Failing(absl::FailedPreconditionError("no driver anywhere"))));
  EXPECT_EQ(selected.device->info().type, DeviceType::kCpu);
  EXPECT_THAT(selected.reason, AllOf(HasSubstr("--device=auto"), HasSubstr("no driver anywhere")));
}

TEST(SelectDevice, AutoHidesNoImpossibleOption) {
  EXPECT_THAT(SelectDevice(DeviceRequest::kAuto, kSmallCpu, {}, Failing(absl::InvalidArgumentError("num_lanes is 0"))),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// On whatever machine this runs.
TEST(CreateCudaDevice, WithoutAGpuItSaysWhatIsMissing) {
  const auto device = CreateCudaDevice({});
  if (device.ok()) GTEST_SKIP() << "this machine has a GPU: " << (*device)->info().name;
  EXPECT_THAT(device.status(),
              AnyOf(StatusIs(absl::StatusCode::kFailedPrecondition, Not("")), StatusIs(absl::StatusCode::kUnimplemented)));
}

}  // namespace
}  // namespace ridgeline::device
