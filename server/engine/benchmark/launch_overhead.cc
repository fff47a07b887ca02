#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/microbench/workload.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::microbench::EmptyParams;

constexpr std::int64_t kCopyElements = 1 << 20;  // 4 MiB, cut into as many copies as there are kernels

Subject MakeEmpty(std::string kernel, std::int64_t tasks) {
  return Subject{.kernel = std::move(kernel), .queue = Queue(EmptyParams{tasks})};
}

// By the host's clock: what a request pays for its kernel to be handed over and to be told of its end.
Subject MakeRoundTrip(const PointContext& context) {
  Subject subject{.kernel = "empty[1 task, awaited]"};
  subject.run_and_time = [&lane = context.lane](std::int64_t repetitions) -> absl::StatusOr<absl::Duration> {
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < repetitions; ++i) {
      RIDGELINE_RETURN_IF_ERROR(lane.Run(EmptyParams{1}));
      RIDGELINE_RETURN_IF_ERROR(measure::AwaitLane(lane));
    }
    return absl::FromChrono(std::chrono::steady_clock::now() - begin);
  };
  return subject;
}

struct Arrays {
  Buffer source, destination;
};

absl::StatusOr<Subject> MakeSplit(const PointContext& context) {
  const std::int64_t kernels = context.values.Integer("kernels");
  auto arrays = std::make_shared<Arrays>();
  RIDGELINE_ASSIGN_OR_RETURN(arrays->source, RandomFloats(context, kCopyElements));
  RIDGELINE_ASSIGN_OR_RETURN(arrays->destination, EmptyFloats(context, kCopyElements));
  const auto queue = [arrays, kernels](device::Lane& lane) -> absl::Status {
    for (std::int64_t i = 0; i < kernels; ++i) {
      const std::int64_t begin = kCopyElements * i / kernels, end = kCopyElements * (i + 1) / kernels;
      RIDGELINE_RETURN_IF_ERROR(
          lane.Run(kernels::microbench::StreamParams{.operation = kernels::microbench::StreamOperation::kCopy,
                                                     .a = static_cast<const float*>(arrays->source.data()) + begin,
                                                     .b = nullptr,
                                                     .destination = static_cast<float*>(arrays->destination.data()) + begin,
                                                     .scale = 1,
                                                     .elements = end - begin,
                                                     .passes = 1,
                                                     .slice_sums = nullptr}));
    }
    return absl::OkStatus();
  };
  const auto check = [arrays, &lane = context.lane]() -> absl::Status {
    RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> from, ReadFloats(lane, arrays->source, kCopyElements));
    RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> to, ReadFloats(lane, arrays->destination, kCopyElements));
    return from == to ? absl::OkStatus() : absl::InternalError("the copy differs from its source");
  };
  return Subject{.kernel = absl::StrCat("copy x ", kernels), .bytes = 2 * kCopyElements * 4, .queue = queue, .check = check};
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  const std::string& mode = context.values.Word("mode");
  if (mode == "queue") return MakeEmpty("empty[1 task]", 1);
  if (mode == "fork_join") return MakeEmpty("empty[a task a thread]", context.device.info().compute_units);
  if (mode == "round_trip") return MakeRoundTrip(context);
  return MakeSplit(context);
}

bool MakesSense(const AxisValues& values) { return values.Word("mode") == "split" || values.Integer("kernels") == 1; }

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  const Point *one = nullptr, *many = nullptr;
  Judgement judgement;
  for (const Point& point : points) {
    const std::string& mode = point.values.Word("mode");
    if (mode != "split") {
      judgement.findings.push_back({absl::StrCat(mode, "_seconds"), point.statistics.median, "of one empty kernel"});
      continue;
    }
    if (point.values.Integer("kernels") == 1) one = &point;
    if (many == nullptr || point.values.Integer("kernels") > many->values.Integer("kernels")) many = &point;
  }
  if (one == nullptr || many == one) return NotEnoughPoints("the same copy by one kernel and by many");
  const double loss = SpeedUp(*many, *one);
  judgement.verdict = VerdictOf(loss > 1.2);
  judgement.explanation =
      absl::StrFormat("the same copy by %d kernels takes %.3g times as long as by one", many->values.Integer("kernels"), loss);
  judgement.findings.push_back({"split_over_whole", loss, "time of many small kernels over that of one"});
  return judgement;
}

}  // namespace

Benchmark LaunchOverhead() {
  return {.name = "launch_overhead",
          .claim =
              "Handing work over costs microseconds, however small the work: many small kernels take longer than one large "
              "one that does the same. Queue: an empty kernel behind others. Fork_join: one that wakes every thread. "
              "Round_trip: one that the host waits for. Split: a copy of 4 MiB in several kernels.",
          .axes = {WordAxis("mode", "what is handed over", {"queue", "fork_join", "round_trip", "split"}),
                   IntegerAxis("kernels", "into which the copy is split; 1 for the other modes", 1, 4096,
                               {1, 4, 16, 64, 256, 1024})},
          .plot = {.x_axis = "kernels", .y = "seconds"},
          .unsupported_reason = &NeedsCpuDevice,
          .makes_sense = &MakesSense,
          .make_subject = &Make,
          .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
