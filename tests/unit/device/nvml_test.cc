#include "server/device/nvml.h"

#include <iterator>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Nvml, AbsentIsAnErrorThatNamesTheLibrary) {
  EXPECT_THAT(Nvml::Create("0000:00:00.0", "libridgeline-no-nvml.so.1"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("libridgeline-no-nvml.so.1")));
}

TEST(Nvml, ALibraryThatIsNotNvmlIsAnError) {
  EXPECT_THAT(Nvml::Create("0000:00:00.0", "libm.so.6"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nvmlInit_v2")));
}

TEST(ThrottleReasons, BitsHaveNames) {
  EXPECT_THAT(ThrottleReasons(0), IsEmpty());
  EXPECT_THAT(ThrottleReasons(0x4 | 0x40), ElementsAre("sw_power_cap", "hw_thermal_slowdown"));
  EXPECT_THAT(ThrottleReasons(~0ull), SizeIs(std::size(kThrottleReasons)));
}

TEST(ThrottleReasons, IdleIsNone) { EXPECT_THAT(ThrottleReasons(0x1), IsEmpty()); }

}  // namespace
}  // namespace ridgeline::device
