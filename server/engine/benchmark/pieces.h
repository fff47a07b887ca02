// What several benchmarks are built of.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/microbench/workload.h"
#include "server/device/device.h"
#include "server/engine/benchmark/benchmark.h"
#include "server/engine/benchmark/subject.h"

namespace ridgeline::engine::benchmark {

// Of benchmarks that need nothing but what serving needs.
std::string AnyDeviceWillDo(const device::DeviceInfo& device);

// "stream_cpu", "stream_cuda".
std::string KernelName(const PointContext& context, std::string_view what);

// `elements` float32 elements: normal(0, 1), or whatever lay there.
absl::StatusOr<device::Buffer> RandomFloats(const PointContext& context, std::int64_t elements, std::uint64_t stream = 0);
absl::StatusOr<device::Buffer> EmptyFloats(const PointContext& context, std::int64_t elements);

// A closure for Subject::queue.
measure::DeviceTrial::QueueWork Queue(kernels::microbench::Workload workload);

// What lies in the first `elements` floats of the buffer.
absl::StatusOr<std::vector<float>> ReadFloats(device::Lane& lane, const device::Buffer& buffer, std::int64_t elements);

// INVALID_ARGUMENT, a reason to skip the point, if one run computes for longer than anybody waits: what is queued runs to its
// end, whether or not its caller is still there.
absl::Status CheckRunTime(const device::DeviceInfo& device, double flops);

// INTERNAL unless |got - want| <= tolerance; NaN never is.
absl::Status ExpectNear(std::string_view what, double got, double want, double tolerance);

using Include = std::function<bool(const Point& point)>;
// The first measured point that `include` takes; null: there is none.
const Point* Find(absl::Span<const Point> points, const Include& include);

// The measured point that has `value` on `axis`, and `point`'s values on all others; null: there is none.
const Point* Sibling(absl::Span<const Point> points, const Point& point, std::string_view axis, std::string_view value);

// By median time of one run, for points that do the same work: how many times faster.
double SpeedUp(const Point& slow, const Point& fast);

// What a benchmark says whose needed points were skipped or not asked for.
Judgement NotEnoughPoints(std::string_view needed);
Verdict VerdictOf(bool is_borne_out);

// "12.3 GB/s", "45.6 GFLOP/s", "7.8 ns", "32.0 KiB": for explanations.
std::string RateText(double per_second, std::string_view unit);
std::string TimeText(double seconds);
std::string SizeText(double bytes);

}  // namespace ridgeline::engine::benchmark
