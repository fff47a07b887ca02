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

constexpr char kName[] = "launch_overhead";
constexpr std::int64_t kResidentBlocks = 32;     // of one warp, on a multiprocessor
constexpr std::int64_t kCopyElements = 1 << 20;  // 4 MiB, cut into as many copies as there are kernels

Subject MakeEmpty(std::string kernel, std::int64_t tasks) {
  return Subject{.kernel = std::move(kernel), .queue = Queue(EmptyParams{tasks})};
}

// By the host's clock, from the first of `repetitions` that are queued to the end of the last.
Subject MakeIssue(const PointContext& context) {
  Subject subject{.kernel = "empty[1 task, many before one wait]"};
  subject.run_and_time = [&lane = context.lane](std::int64_t repetitions) -> absl::StatusOr<absl::Duration> {
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < repetitions; ++i) RIDGELINE_RETURN_IF_ERROR(lane.Run(EmptyParams{1}));
    RIDGELINE_RETURN_IF_ERROR(measure::AwaitLane(lane));
    return absl::FromChrono(std::chrono::steady_clock::now() - begin);
  };
  return subject;
}

// By the host's clock: runs `queue` and waits for its end, each time. What a request pays for its kernels to be handed over and
// to be told of their end.
Subject MakeAwaited(const PointContext& context, std::string kernel, measure::DeviceTrial::QueueWork queue) {
  Subject subject{.kernel = std::move(kernel)};
  subject.run_and_time = [&lane = context.lane,
                          queue = std::move(queue)](std::int64_t repetitions) mutable -> absl::StatusOr<absl::Duration> {
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < repetitions; ++i) {
      RIDGELINE_RETURN_IF_ERROR(queue(lane));
      RIDGELINE_RETURN_IF_ERROR(measure::AwaitLane(lane));
    }
    return absl::FromChrono(std::chrono::steady_clock::now() - begin);
  };
  return subject;
}

// By the host's clock: calls of the server that this is part of, which compute nothing.
absl::StatusOr<Subject> MakeCall(const PointContext& context) {
  if (context.empty_call == nullptr) return absl::UnimplementedError("there is no server here to be called");
  RIDGELINE_RETURN_IF_ERROR(context.empty_call());  // connects
  Subject subject{.kernel = "none: a call over the daemon's own socket"};
  subject.run_and_time = [call = context.empty_call](std::int64_t repetitions) -> absl::StatusOr<absl::Duration> {
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < repetitions; ++i) RIDGELINE_RETURN_IF_ERROR(call());
    return absl::FromChrono(std::chrono::steady_clock::now() - begin);
  };
  return subject;
}

// A copy, in parts.
struct SplitCopy {
  Buffer source, destination;
  std::vector<kernels::microbench::Workload> parts;
  std::unique_ptr<device::Graph> graph;  // of the parts; may be null
};

absl::StatusOr<std::shared_ptr<SplitCopy>> MakeSplitCopy(const PointContext& context) {
  const std::int64_t kernels = context.values.Integer("kernels");
  auto copy = std::make_shared<SplitCopy>();
  RIDGELINE_ASSIGN_OR_RETURN(copy->source, RandomFloats(context, kCopyElements));
  RIDGELINE_ASSIGN_OR_RETURN(copy->destination, EmptyFloats(context, kCopyElements));
  for (std::int64_t i = 0; i < kernels; ++i) {
    const std::int64_t begin = kCopyElements * i / kernels, end = kCopyElements * (i + 1) / kernels;
    copy->parts.emplace_back(
        kernels::microbench::StreamParams{.operation = kernels::microbench::StreamOperation::kCopy,
                                          .a = static_cast<const float*>(copy->source.data()) + begin,
                                          .b = nullptr,
                                          .destination = static_cast<float*>(copy->destination.data()) + begin,
                                          .scale = 1,
                                          .elements = end - begin,
                                          .passes = 1,
                                          .slice_sums = nullptr});
  }
  return copy;
}

absl::Status QueueParts(device::Lane& lane, const SplitCopy& copy) {
  for (const kernels::microbench::Workload& part : copy.parts) RIDGELINE_RETURN_IF_ERROR(lane.Run(part));
  return absl::OkStatus();
}

absl::Status CheckCopy(device::Lane& lane, const SplitCopy& copy) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> from, ReadFloats(lane, copy.source, kCopyElements));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> to, ReadFloats(lane, copy.destination, kCopyElements));
  return from == to ? absl::OkStatus() : absl::InternalError("the copy differs from its source");
}

// On the CPU by the device's time; on CUDA by the host's, whose calls are what it costs.
absl::StatusOr<Subject> MakeSplit(const PointContext& context) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::shared_ptr<SplitCopy> copy, MakeSplitCopy(context));
  const auto queue = [copy](device::Lane& lane) { return QueueParts(lane, *copy); };
  const std::string kernel = absl::StrCat("copy x ", copy->parts.size());
  Subject subject = context.device.info().type == device::DeviceType::kCpu ? Subject{.kernel = kernel, .queue = queue}
                                                                           : MakeAwaited(context, kernel, queue);
  subject.bytes = 2 * kCopyElements * 4;
  subject.check = [copy, &lane = context.lane] { return CheckCopy(lane, *copy); };
  return subject;
}

absl::StatusOr<Subject> MakeGraph(const PointContext& context) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::shared_ptr<SplitCopy> copy, MakeSplitCopy(context));
  RIDGELINE_ASSIGN_OR_RETURN(copy->graph, context.lane.Capture(copy->parts));
  // Also where this returns an error the graph lives until the lane has taken it.
  RIDGELINE_RETURN_IF_ERROR(measure::AwaitLane(context.lane));
  Subject subject = MakeAwaited(context, absl::StrCat("graph of copy x ", copy->parts.size()),
                                [copy](device::Lane& lane) { return lane.Replay(*copy->graph); });
  subject.bytes = 2 * kCopyElements * 4;
  subject.check = [copy, &lane = context.lane] { return CheckCopy(lane, *copy); };
  return subject;
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  const std::string& mode = context.values.Word("mode");
  if (mode == "queue") return MakeEmpty("empty[1 task]", 1);
  if (mode == "issue") return MakeIssue(context);
  if (mode == "fork_join") return MakeEmpty("empty[a task a thread]", context.device.info().compute_units);
  if (mode == "all_warps") {
    return MakeEmpty("empty[a warp for each place]", context.device.info().compute_units * kResidentBlocks);
  }
  if (mode == "round_trip") return MakeAwaited(context, "empty[1 task, awaited]", Queue(EmptyParams{1}));
  if (mode == "graph") return MakeGraph(context);
  if (mode == "rpc") return MakeCall(context);
  return MakeSplit(context);
}

bool IsSplit(const std::string& mode) { return mode == "split" || mode == "graph"; }

bool MakesSense(const AxisValues& values) { return IsSplit(values.Word("mode")) || values.Integer("kernels") == 1; }

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  const Point *one = nullptr, *many = nullptr;
  Judgement judgement;
  for (const Point& point : points) {
    const std::string& mode = point.values.Word("mode");
    if (!IsSplit(mode)) {
      judgement.findings.push_back({absl::StrCat(mode, "_seconds"), point.statistics.median,
                                    mode == "rpc" ? "of one empty call" : "of one empty kernel"});
    }
    if (mode != "split") continue;
    if (point.values.Integer("kernels") == 1) one = &point;
    if (many == nullptr || point.values.Integer("kernels") > many->values.Integer("kernels")) many = &point;
  }
  if (one == nullptr || many == one) {
    judgement.explanation = NotEnoughPoints("the same copy by one kernel and by many").explanation;
    return judgement;
  }
  const double loss = SpeedUp(*many, *one);
  judgement.verdict = VerdictOf(loss > 1.2);
  judgement.explanation =
      absl::StrFormat("the same copy by %d kernels takes %.3g times as long as by one", many->values.Integer("kernels"), loss);
  judgement.findings.push_back({"split_over_whole", loss, "time of many small kernels over that of one"});
  const Point* const graph = Find(points, [&](const Point& point) {
    return point.values.Word("mode") == "graph" && point.values.Integer("kernels") == many->values.Integer("kernels");
  });
  if (graph != nullptr) {
    judgement.findings.push_back({"graph_speed_up", SpeedUp(*many, *graph), "the same kernels as one graph"});
  }
  return judgement;
}

Benchmark OnCpu() {
  return {.name = kName,
          .claim =
              "Handing work over costs microseconds, however small the work: many small kernels take longer than one large "
              "one that does the same. Queue: an empty kernel behind others. Fork_join: one that wakes every thread. "
              "Round_trip: one that the host waits for. Split: a copy of 4 MiB in several kernels. "
              "Rpc: a call of the daemon by itself that computes nothing, waited for: what any remote work pays on top.",
          .axes = {WordAxis("mode", "what is handed over", {"queue", "fork_join", "round_trip", "rpc", "split"}),
                   IntegerAxis("kernels", "into which the copy is split; 1 for the other modes", 1, 4096,
                               {1, 4, 16, 64, 256, 1024})},
          .plot = {.x_axis = "kernels", .y = "seconds"},
          .unsupported_reason = &AnyDeviceWillDo,
          .makes_sense = &MakesSense,
          .make_subject = &Make,
          .judge = &Judge};
}

Benchmark OnCuda() {
  Benchmark benchmark = OnCpu();
  benchmark.claim =
      "Handing work over costs microseconds, however small the work: many small kernels take longer than one large one that "
      "does the same, and a graph that hands them over together takes less. By the device's clock, queue: an empty kernel "
      "behind others; all_warps: one that fills every multiprocessor. By the host's clock, issue: an empty kernel of many that "
      "are queued before one wait; round_trip: one that is waited for; split: a copy of 4 MiB in several kernels, waited for; "
      "graph: those kernels replayed as a CUDA graph; rpc: a call of the daemon by itself that computes nothing, waited for, "
      "which is what any remote work pays on top.";
  benchmark.axes[0] =
      WordAxis("mode", "what is handed over", {"queue", "all_warps", "issue", "round_trip", "rpc", "split", "graph"});
  benchmark.axes[1].description = "into which the copy is split; 1 for modes without a copy";
  return benchmark;
}

}  // namespace

Benchmark LaunchOverhead(device::DeviceType type) { return type == device::DeviceType::kCpu ? OnCpu() : OnCuda(); }

}  // namespace ridgeline::engine::benchmark
