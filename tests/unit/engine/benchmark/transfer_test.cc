// The benchmark of copies, on a CPU device that passes for a GPU: its copies are from memory to memory, its lanes are two.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/run.h"
#include "tests/support/flaky_device.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/benchmark/events.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine::benchmark {
namespace {

using support::IsOk;
using support::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TransferTest : public ::testing::Test {
 protected:
  absl::Status Run(const std::map<std::string, std::vector<std::string>>& axes, Told& told) { return Run(device_, axes, told); }

  absl::Status Run(support::FlakyDevice& device, const std::map<std::string, std::vector<std::string>>& axes, Told& told) {
    device::DeviceInfo cuda = device.info();
    cuda.type = device::DeviceType::kCuda;
    const Request request{
        .name = "transfer", .axes = axes, .measurement = {.warm_up = absl::ZeroDuration(), .max_time = absl::Milliseconds(1)}};
    RIDGELINE_ASSIGN_OR_RETURN(const Plan plan, MakePlan(request, cuda));
    return Execute(
        plan, {device, roofline_, base::Clock::Real()}, device.lane(0), [] { return absl::OkStatus(); },
        [&](const Event& event) { told.Add(event); });
  }

  support::FlakyDevice device_{MakeDevice(/*num_lanes=*/2)};
  const Roofline roofline_ = MadeUpRoofline();
};

TEST_F(TransferTest, EveryDirectionAndKindOfMemory) {
  Told told;
  ASSERT_THAT(Run({{"pattern", {"to_device", "to_host", "both_ways"}}, {"size_bytes", {"1", "4099"}}}, told), IsOk());
  ASSERT_THAT(told.points, SizeIs((3 + 3 + 2) * 2));  // registered memory in one direction alone
  for (const Point& point : told.points) {
    SCOPED_TRACE(point.values.ToString());
    EXPECT_THAT(point.skipped_reason, IsEmpty());
    const bool both = point.values.Word("pattern") == "both_ways";
    EXPECT_EQ(point.report.bytes, (both ? 2 : 1) * point.values.Integer("size_bytes"));
  }
  EXPECT_EQ(device_.memory_stats().reserved_bytes, 0);
}

TEST_F(TransferTest, ProductsRunBehindACopyOrBesideIt) {
  Told told;
  ASSERT_THAT(Run({{"pattern", {"copy_then_products", "copy_beside_products"}},
                   {"memory", {"pinned"}},
                   {"size_bytes", {"4096", "1048576"}}},
                  told),
              IsOk());
  ASSERT_THAT(told.points, SizeIs(2)) << "a small copy with products makes no sense";
  for (const Point& point : told.points) {
    EXPECT_THAT(point.report.kernel, HasSubstr("gemm"));
    EXPECT_GT(point.figures.at("copy_alone_seconds"), 0);
    EXPECT_GT(point.figures.at("products_alone_seconds"), 0);
    EXPECT_GE(point.figures.at("hidden_share"), 0);
    EXPECT_LE(point.figures.at("hidden_share"), 1);
  }
  EXPECT_EQ(device_.memory_stats().reserved_bytes, 0);
}

TEST_F(TransferTest, OneLaneHasNothingBesideIt) {
  support::FlakyDevice device(MakeDevice(/*num_lanes=*/1));
  Told told;
  ASSERT_THAT(Run(device, {{"pattern", {"to_host", "both_ways"}}, {"memory", {"pinned"}}, {"size_bytes", {"64"}}}, told),
              IsOk());
  EXPECT_THAT(told.points.at(0).skipped_reason, IsEmpty());
  EXPECT_THAT(told.points.at(1).skipped_reason, HasSubstr("one lane"));
}

TEST_F(TransferTest, ADeviceThatFailsAtAnyCallEndsItAndLosesNoMemory) {
  for (std::int64_t n = 0; n < 12; ++n) {
    device_.FailCall(n, absl::UnavailableError("injected"));
    Told told;
    EXPECT_THAT(Run({{"pattern", {"both_ways"}}, {"memory", {"pageable"}}, {"size_bytes", {"64"}}}, told),
                StatusIs(absl::StatusCode::kUnavailable))
        << n;
    EXPECT_EQ(device_.memory_stats().allocation_count, 0) << n;
  }
}

TEST_F(TransferTest, TooLargeACopyIsSkipped) {
  Told told;
  ASSERT_THAT(Run({{"pattern", {"to_host"}}, {"memory", {"pinned"}}, {"size_bytes", {"68719476736", "64"}}}, told), IsOk());
  EXPECT_THAT(told.points.at(0).skipped_reason, HasSubstr("memory"));
  EXPECT_THAT(told.points.at(1).skipped_reason, IsEmpty());
}

}  // namespace
}  // namespace ridgeline::engine::benchmark
