// The benchmarks: one explicit list. A kind of device may have axes, kernels and a claim of its own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/device/device.h"
#include "server/engine/benchmark/axes.h"
#include "server/engine/benchmark/benchmark.h"
#include "server/engine/benchmark/subject.h"

namespace ridgeline::engine::benchmark {

struct Benchmark {
  std::string name;
  std::string claim;
  std::vector<Axis> axes = {};
  Plot plot = {};
  // Empty: the device has it. Else a sentence that says why not.
  std::string (*unsupported_reason)(const device::DeviceInfo& device);
  // Null: all combinations of values do.
  bool (*makes_sense)(const AxisValues& values) = nullptr;
  // RESOURCE_EXHAUSTED, UNIMPLEMENTED and INVALID_ARGUMENT: the point is skipped, with the message as the reason. Null where no
  // device has the benchmark.
  absl::StatusOr<Subject> (*make_subject)(const PointContext& context) = nullptr;
  // What measured points say of the claim.
  Judgement (*judge)(absl::Span<const Point> points, const device::DeviceInfo& device) = nullptr;
};

absl::Span<const Benchmark> Benchmarks(device::DeviceType type);

// Null: there is none.
const Benchmark* FindBenchmark(absl::string_view name, device::DeviceType type);

Description Describe(const Benchmark& benchmark, const device::DeviceInfo& device);

}  // namespace ridgeline::engine::benchmark
