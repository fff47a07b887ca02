#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/metrics.h"
#include "server/device/device.h"
#include "server/engine/engine_metrics.h"

namespace ridgeline::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(GpuMetrics, FollowTheGpuInBaseUnits) {
  base::MetricsRegistry registry;
  device::GpuStatus status;
  status.sm_clock_mhz = 1980;
  status.power_watts = 350.5;
  status.uncorrected_ecc_errors = 0;
  status.throttle_reasons = std::vector<std::string>();
  const GpuMetrics metrics(registry, status);
  metrics.Update(status);
  EXPECT_THAT(registry.Serialize(), AllOf(HasSubstr("ridgeline_gpu_clock_hertz{clock=\"sm\"} 1980000000\n"),
                                          HasSubstr("ridgeline_gpu_power_watts 350.5\n"),
                                          HasSubstr("ridgeline_gpu_ecc_errors{kind=\"uncorrected\"} 0\n"),
                                          HasSubstr("ridgeline_gpu_throttled{reason=\"sw_power_cap\"} 0\n")));
  status.throttle_reasons = {"sw_power_cap"};
  status.power_watts = 700;
  metrics.Update(status);
  EXPECT_THAT(registry.Serialize(), AllOf(HasSubstr("ridgeline_gpu_throttled{reason=\"sw_power_cap\"} 1\n"),
                                          HasSubstr("ridgeline_gpu_throttled{reason=\"hw_slowdown\"} 0\n"),
                                          HasSubstr("ridgeline_gpu_power_watts 700\n")));
}

TEST(GpuMetrics, WhatIsNotKnownHasNoSeries) {
  base::MetricsRegistry registry;
  const GpuMetrics metrics(registry, {});
  metrics.Update({});
  EXPECT_THAT(registry.Serialize(), Not(HasSubstr("ridgeline_gpu")));
}

}  // namespace
}  // namespace ridgeline::engine
