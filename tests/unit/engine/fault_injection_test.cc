// The n-th call of the device fails, for every n on the Attend path: a clean error, no leak, and an engine that serves on.
#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "server/engine/engine.h"
#include "tests/support/flaky_device.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine {
namespace {

using kernels::attention::Algorithm;
using support::IsOk;
using support::StatusIs;

// Every tensor that a request can have, so that every call is on the path.
AttendRequest FullRequest(Algorithm algorithm) {
  AttendRequest request = SmallRequest();
  request.options.algorithm = algorithm;
  request.options.alibi_slopes = RandomTensor({4}, 4);
  request.options.sink_logits = RandomTensor({4}, 5);
  request.options.bias = RandomTensor({2, 4, 3, 5}, 6);
  request.output.log_sum_exp = true;
  return request;
}

class FaultInjectionTest : public ::testing::TestWithParam<Algorithm> {};

TEST_P(FaultInjectionTest, EveryCallMayFail) {
  support::FlakyDevice device(MakeDevice(/*num_lanes=*/1));
  base::MetricsRegistry metrics;
  const std::unique_ptr<Engine> engine = CreateEngine({}, device, MadeUpRoofline(), metrics, base::Clock::Real());
  const auto attend = [&] {
    Answer answer;
    engine->Attend(FullRequest(GetParam()), {}, answer.Callback());
    return answer.Wait().status();
  };
  ASSERT_OK(attend());
  const std::int64_t calls_per_request = device.num_calls();
  ASSERT_GT(calls_per_request, 10);
  for (std::int64_t n = 0; n < calls_per_request; ++n) {
    device.FailCall(n, absl::InternalError("injected"));
    EXPECT_THAT(attend(), StatusIs(absl::StatusCode::kInternal, ::testing::HasSubstr("injected"))) << "call " << n;
    EXPECT_TRUE(AllMemoryReturns(device)) << "call " << n;
    EXPECT_OK(attend()) << "after call " << n;
  }
}

INSTANTIATE_TEST_SUITE_P(, FaultInjectionTest, ::testing::Values(Algorithm::kStandard, Algorithm::kFlash),
                         [](const auto& instance) { return Name(instance.param); });

}  // namespace
}  // namespace ridgeline::engine
