#include "server/engine/benchmark/limits.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::engine::benchmark {
namespace {

constexpr absl::Duration kDefaultTotal = absl::Seconds(10);
constexpr absl::Duration kShortestDefault = absl::Milliseconds(30);

absl::Status CheckDuration(const char* field, const std::optional<absl::Duration>& duration, absl::Duration longest,
                           bool may_be_zero) {
  if (!duration.has_value()) return absl::OkStatus();
  const bool is_positive = *duration > absl::ZeroDuration() || (may_be_zero && *duration == absl::ZeroDuration());
  if (is_positive && *duration <= longest) return absl::OkStatus();
  const std::string path = absl::StrCat("measurement.", field);
  return base::InvalidField(path, absl::StrCat(path, " is ", absl::FormatDuration(*duration), "; allowed is ",
                                               may_be_zero ? "0" : "more than 0", " to ", absl::FormatDuration(longest)));
}

absl::Status Check(const MeasurementOptions& options) {
  RIDGELINE_RETURN_IF_ERROR(CheckDuration("warm_up", options.warm_up, kLongestWarmUp, /*may_be_zero=*/true));
  RIDGELINE_RETURN_IF_ERROR(CheckDuration("min_time", options.min_time, kLongestPoint, /*may_be_zero=*/true));
  RIDGELINE_RETURN_IF_ERROR(CheckDuration("max_time", options.max_time, kLongestPoint, /*may_be_zero=*/false));
  if (options.min_time.has_value() && options.max_time.has_value() && *options.min_time > *options.max_time) {
    return base::InvalidField("measurement.min_time",
                              absl::StrCat("measurement.min_time is ", absl::FormatDuration(*options.min_time),
                                           ", more than max_time, ", absl::FormatDuration(*options.max_time)));
  }
  const std::optional<double>& noise = options.max_relative_noise;
  if (noise.has_value() && !(*noise >= 0 && *noise <= 1)) {
    return base::InvalidField("measurement.max_relative_noise",
                              absl::StrCat("measurement.max_relative_noise is ", *noise, "; allowed is 0 to 1"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<measure::Limits> ResolveLimits(const MeasurementOptions& options, std::int64_t num_points) {
  RIDGELINE_RETURN_IF_ERROR(Check(options));
  measure::Limits limits;
  limits.warm_up = options.warm_up.value_or(limits.warm_up);
  limits.max_relative_noise = options.max_relative_noise.value_or(limits.max_relative_noise);
  const absl::Duration share = std::clamp(kDefaultTotal / num_points, kShortestDefault, limits.max_time);
  limits.max_time = options.max_time.value_or(std::max(share, options.min_time.value_or(absl::ZeroDuration())));
  limits.min_time = options.min_time.value_or(std::min(limits.min_time, limits.max_time));
  return limits;
}

}  // namespace ridgeline::engine::benchmark
