// The latency of dependent loads, and the levels that it shows.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/engine/benchmark/benchmark.h"
#include "server/engine/benchmark/subject.h"

namespace ridgeline::engine::benchmark {

// One thread follows a chain through all nodes of a working set in random order, a node a cache line. Its figure is
// latency_seconds.
absl::StatusOr<Subject> MakeChase(const PointContext& context, std::int64_t working_set_bytes, std::int64_t line_bytes);

// Of the points whose operation is "chase": their levels, each several times slower than the one before.
Judgement JudgeChase(absl::Span<const Point> points);

}  // namespace ridgeline::engine::benchmark
