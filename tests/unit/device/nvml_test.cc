#include "server/device/nvml.h"

#include <iterator>
#include <optional>

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
using ::testing::Optional;
using ::testing::SizeIs;

TEST(Nvml, AbsentIsAnErrorThatNamesTheLibrary) {
  EXPECT_THAT(Nvml::Create("0000:00:00.0", "libridgeline-no-nvml.so.1"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("libridgeline-no-nvml.so.1")));
}

TEST(Nvml, ALibraryThatIsNotNvmlIsAnError) {
  EXPECT_THAT(Nvml::Create("0000:00:00.0", "libm.so.6"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nvmlInit_v2")));
}

TEST(Nvml, AGpuThatItDoesNotKnowIsAnError) {
  EXPECT_THAT(Nvml::Create("0000:ff:00.0", RIDGELINE_FAKE_NVML),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("0000:ff:00.0")));
}

TEST(Nvml, ReadsWhatTheGpuAnswersAndLeavesTheRestEmpty) {
  const auto nvml = Nvml::Create("0000:1b:00.0", RIDGELINE_FAKE_NVML);
  ASSERT_OK(nvml.status());
  const GpuStatus status = (*nvml)->Read();
  EXPECT_EQ(status.uuid, "GPU-fake");
  EXPECT_EQ(status.driver_version, "580.0");
  EXPECT_EQ(status.sm_clock_mhz, 1980);
  EXPECT_EQ(status.memory_clock_mhz, 3201);
  EXPECT_EQ(status.power_watts, 350.5);
  EXPECT_EQ(status.power_limit_watts, std::nullopt);
  EXPECT_EQ(status.temperature_celsius, 41);
  EXPECT_EQ(status.corrected_ecc_errors, 7);
  EXPECT_EQ(status.uncorrected_ecc_errors, 1);
  EXPECT_EQ(status.utilization, 0.25);
  EXPECT_THAT(status.throttle_reasons, Optional(ElementsAre("sw_power_cap")));
  EXPECT_EQ(status.xid_errors, 2) << "both that waited";
  EXPECT_EQ(status.last_xid, 79);
  EXPECT_EQ((*nvml)->Read().xid_errors, 2) << "none has come since";
}

TEST(ThrottleReasons, BitsHaveNames) {
  EXPECT_THAT(ThrottleReasons(0), IsEmpty());
  EXPECT_THAT(ThrottleReasons(0x4 | 0x40), ElementsAre("sw_power_cap", "hw_thermal_slowdown"));
  EXPECT_THAT(ThrottleReasons(~0ull), SizeIs(std::size(kThrottleReasons)));
}

TEST(ThrottleReasons, IdleIsNone) { EXPECT_THAT(ThrottleReasons(0x1), IsEmpty()); }

}  // namespace
}  // namespace ridgeline::device
