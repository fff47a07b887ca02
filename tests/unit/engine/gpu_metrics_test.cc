#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/metrics.h"
#include "server/device/device.h"
#include "server/engine/gpu_metrics.h"

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
  status.utilization = 0.25;
  status.xid_errors = 2;
  status.last_xid = 79;
  status.throttle_reasons = std::vector<std::string>();
  GpuMetrics metrics(registry, "GPU-1");
  metrics.Update(status);
  EXPECT_THAT(registry.Serialize(), AllOf(HasSubstr("ridgeline_gpu_clock_hertz{UUID=\"GPU-1\",clock=\"sm\"} 1980000000\n"),
                                          HasSubstr("ridgeline_gpu_power_watts{UUID=\"GPU-1\"} 350.5\n"),
                                          HasSubstr("ridgeline_gpu_ecc_errors{UUID=\"GPU-1\",kind=\"uncorrected\"} 0\n"),
                                          HasSubstr("ridgeline_gpu_utilization_ratio{UUID=\"GPU-1\"} 0.25\n"),
                                          HasSubstr("ridgeline_gpu_xid_errors{UUID=\"GPU-1\"} 2\n"),
                                          HasSubstr("ridgeline_gpu_last_xid{UUID=\"GPU-1\"} 79\n"),
                                          HasSubstr("ridgeline_gpu_throttled{UUID=\"GPU-1\",reason=\"sw_power_cap\"} 0\n")));
  status.throttle_reasons = {"sw_power_cap"};
  status.power_watts = 700;
  metrics.Update(status);
  EXPECT_THAT(registry.Serialize(), AllOf(HasSubstr("reason=\"sw_power_cap\"} 1\n"), HasSubstr("reason=\"hw_slowdown\"} 0\n"),
                                          HasSubstr("ridgeline_gpu_power_watts{UUID=\"GPU-1\"} 700\n")));
}

TEST(GpuMetrics, WhatIsNotKnownHasNoSeries) {
  base::MetricsRegistry registry;
  GpuMetrics metrics(registry, "GPU-1");
  metrics.Update({});
  EXPECT_THAT(registry.Serialize(), Not(HasSubstr("ridgeline_gpu")));
}

TEST(GpuMetrics, AReadingThatIsLostVanishes) {
  base::MetricsRegistry registry;
  GpuMetrics metrics(registry, "GPU-1");
  device::GpuStatus status;
  status.power_watts = 350.5;
  status.temperature_celsius = 40;
  status.throttle_reasons = {"sw_power_cap"};
  metrics.Update(status);
  status.power_watts = std::nullopt;
  metrics.Update(status);
  EXPECT_THAT(registry.Serialize(), AllOf(Not(HasSubstr("power_watts")), HasSubstr("temperature")));
  metrics.Update({});
  EXPECT_THAT(registry.Serialize(), Not(HasSubstr("ridgeline_gpu"))) << "monitoring that broke off leaves no stale reading";
}

}  // namespace
}  // namespace ridgeline::engine
