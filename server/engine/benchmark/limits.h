// How long the points of a benchmark are measured.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/engine/benchmark/benchmark.h"
#include "server/engine/measure/sampling.h"

namespace ridgeline::engine::benchmark {

inline constexpr absl::Duration kLongestPoint = absl::Minutes(1);
inline constexpr absl::Duration kLongestWarmUp = absl::Seconds(10);

// Where the request says nothing, a benchmark of any number of points takes about ten seconds, and a point at most one. A
// max_time that is given wins over a min_time that is not. Errors: INVALID_ARGUMENT naming the field below "measurement".
absl::StatusOr<measure::Limits> ResolveLimits(const MeasurementOptions& options, std::int64_t num_points);

}  // namespace ridgeline::engine::benchmark
