#include "server/device/device_loss.h"

#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(DeviceLoss, NothingIsLostAtFirst) { EXPECT_OK(DeviceLoss().status()); }

TEST(DeviceLoss, TheFirstCauseStaysAndItsCodeIsUnavailable) {
  DeviceLoss loss;
  loss.Lose(absl::InternalError("first"));
  loss.Lose(absl::InternalError("second"));
  EXPECT_THAT(loss.status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("first")));
  EXPECT_EQ(base::ErrorReason(loss.status()), base::kReasonDeviceFailed);
}

TEST(DeviceLoss, TheListenerIsToldOnce) {
  DeviceLoss loss;
  std::vector<absl::Status> told;
  loss.OnLost([&](const absl::Status& cause) { told.push_back(cause); });
  loss.Lose(absl::InternalError("first"));
  loss.Lose(absl::InternalError("second"));
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told.front(), loss.status());
}

TEST(DeviceLoss, AListenerThatComesLateIsToldAtOnce) {
  DeviceLoss loss;
  loss.Lose(absl::InternalError("gone"));
  absl::Status told;
  loss.OnLost([&](const absl::Status& cause) { told = cause; });
  EXPECT_EQ(told, loss.status());
}

}  // namespace
}  // namespace ridgeline::device
