#include "server/engine/benchmark/limits.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::engine::benchmark {
namespace {

using support::StatusIs;

TEST(LimitsTest, DefaultsShareTenSecondsAmongThePoints) {
  EXPECT_EQ(ResolveLimits({}, 100)->max_time, absl::Milliseconds(100));
  EXPECT_EQ(ResolveLimits({}, 1)->max_time, absl::Seconds(1)) << "at most a second a point";
  EXPECT_EQ(ResolveLimits({}, 1000)->max_time, absl::Milliseconds(30)) << "enough for some samples";
  EXPECT_EQ(ResolveLimits({}, 10)->max_relative_noise, 0.005);
}

TEST(LimitsTest, AMaxTimeThatIsGivenWinsOverADefaultMinTime) {
  const auto limits = ResolveLimits({.max_time = absl::Milliseconds(5)}, 10);
  EXPECT_EQ(limits->max_time, absl::Milliseconds(5));
  EXPECT_EQ(limits->min_time, absl::Milliseconds(5));
}

TEST(LimitsTest, AMinTimeThatIsGivenRaisesADefaultMaxTime) {
  const auto limits = ResolveLimits({.min_time = absl::Seconds(7)}, 10);
  EXPECT_EQ(limits->min_time, absl::Seconds(7));
  EXPECT_EQ(limits->max_time, absl::Seconds(7));
}

void ExpectRefused(const MeasurementOptions& options, const std::string& field) {
  const auto limits = ResolveLimits(options, 10);
  EXPECT_THAT(limits, StatusIs(absl::StatusCode::kInvalidArgument)) << field;
  EXPECT_EQ(base::ErrorField(limits.status()), field);
}

TEST(LimitsTest, ImpossibleLimitsAreNamed) {
  ExpectRefused({.max_time = absl::ZeroDuration()}, "measurement.max_time");
  ExpectRefused({.max_time = absl::Seconds(-1)}, "measurement.max_time");
  ExpectRefused({.max_time = absl::Seconds(61)}, "measurement.max_time");
  ExpectRefused({.max_time = absl::InfiniteDuration()}, "measurement.max_time");
  ExpectRefused({.min_time = absl::Seconds(-1)}, "measurement.min_time");
  ExpectRefused({.min_time = absl::Seconds(2), .max_time = absl::Seconds(1)}, "measurement.min_time");
  ExpectRefused({.warm_up = absl::Seconds(11)}, "measurement.warm_up");
  for (const double noise : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    ExpectRefused({.max_relative_noise = noise}, "measurement.max_relative_noise");
  }
}

}  // namespace
}  // namespace ridgeline::engine::benchmark
