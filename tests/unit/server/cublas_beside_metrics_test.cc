// The metrics port serves in a process that has CUDA's runtime and cuBLAS: server/device/dynamic_library.h and
// server/api/metrics_server.cc say why it might not. Each TLS of theirs is stack that its threads lack.
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/metrics_server.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/device/cpu_device.h"
#include "server/device/cublas_library.h"
#include "server/engine/engine.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline {
namespace {

TEST(CublasBesideMetrics, MetricsAreServed) {
  const auto cublas = device::LoadCublas();
  if (!cublas.ok()) GTEST_SKIP() << cublas.status().message();
  EXPECT_STREQ(cublas->get_status_string(CUBLAS_STATUS_SUCCESS), "success") << "loaded, and callable";

  const auto device = device::CreateCpuDevice({.num_lanes = 1, .num_threads = 1});
  ASSERT_THAT(device, support::IsOk());
  base::MetricsRegistry metrics;
  const auto engine = engine::CreateEngine({}, **device, {}, metrics, base::Clock::Real());
  const auto server = api::StartMetricsServer("127.0.0.1:0", metrics, *engine);
  ASSERT_THAT(server, support::IsOk());
  const support::HttpResponse response = support::HttpRequest("GET", (*server)->address(), "/metrics");
  EXPECT_EQ(response.code, 200);
  EXPECT_THAT(response.body, ::testing::HasSubstr("ridgeline_build_info"));
}

}  // namespace
}  // namespace ridgeline
