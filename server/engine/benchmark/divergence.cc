#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/microbench/divergence.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::microbench::DivergenceParams;
using kernels::microbench::kMaxPaths;

constexpr std::int64_t kIterations = 4096;
constexpr std::int64_t kWarpThreads = 32;
constexpr std::int64_t kWarpsOfMultiprocessor = 64;  // as many as any holds

// What a thread of that path ends with: fused multiply-adds round the same everywhere.
float EndOfPath(int path) {
  float x = 1;
  for (std::int64_t i = 0; i < kIterations; ++i) {
    x = std::fma(x, kernels::microbench::kPathFactor, kernels::microbench::PathAddend(path));
  }
  return x;
}

absl::Status Check(device::Lane& lane, const Buffer& results, const DivergenceParams& params) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> got, ReadFloats(lane, results, params.num_warps * kWarpThreads));
  std::array<float, kMaxPaths> want;
  for (int path = 0; path < params.paths; ++path) want[path] = EndOfPath(path);
  for (std::size_t thread = 0; thread < got.size(); ++thread) {
    const std::size_t chooser = params.aligned_to_warps ? thread / kWarpThreads : thread;
    RIDGELINE_RETURN_IF_ERROR(
        ExpectNear(absl::StrCat("the result of thread ", thread), got[thread], want[chooser % params.paths], 0));
  }
  return absl::OkStatus();
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  DivergenceParams params{.aligned_to_warps = context.values.Word("paths_differ_by") == "warp",
                          .paths = static_cast<int>(context.values.Integer("paths")),
                          .iterations = kIterations,
                          .num_warps = context.device.info().compute_units * kWarpsOfMultiprocessor,
                          .results = nullptr};
  const std::int64_t threads = params.num_warps * kWarpThreads;
  RIDGELINE_ASSIGN_OR_RETURN(Buffer results, EmptyFloats(context, threads));
  const auto kept = std::make_shared<Buffer>(std::move(results));
  params.results = static_cast<float*>(kept->data());
  return Subject{.kernel = absl::StrCat("divergence[paths=", params.paths, ",", context.values.Word("paths_differ_by"), "]"),
                 .flops = 2 * threads * kIterations,
                 .bytes = threads * 4,
                 .queue = [params, kept](device::Lane& lane) { return lane.Run(params); },
                 .check = [params, kept, &lane = context.lane] { return Check(lane, *kept, params); }};
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  const auto at = [&](const std::string& by, std::int64_t paths) {
    return Find(points, [=](const Point& point) {
      return point.values.Word("paths_differ_by") == by && point.values.Integer("paths") == paths;
    });
  };
  std::int64_t most = 0;
  for (const Point& point : points) most = std::max(most, point.values.Integer("paths"));
  const Point* const one = at("thread", 1);
  const Point* const many = at("thread", most);
  const Point* const aligned = at("warp", most);
  if (one == nullptr || many == nullptr || most < 2) return NotEnoughPoints("one path and several, by thread");
  const double loss = SpeedUp(*many, *one);
  Judgement judgement{
      .verdict = VerdictOf(loss > 0.7 * static_cast<double>(most)),
      .explanation = absl::StrFormat("%d paths in a warp take %.3g times as long as one", most, loss),
      .findings = {{"divergent_over_uniform", loss, absl::StrCat("time of ", most, " paths in a warp over that of one")}}};
  if (aligned == nullptr) return judgement;
  const double cost = SpeedUp(*aligned, *one);
  judgement.findings.push_back({"aligned_over_uniform", cost, "the same paths, each warp with one of its own"});
  absl::StrAppend(&judgement.explanation, absl::StrFormat("; with a path a warp the same work takes %.3g times as long", cost));
  return judgement;
}

}  // namespace

Benchmark Divergence() {
  return {.name = "divergence",
          .claim =
              "Threads of a warp that take different paths wait for each other: n paths cost n times the time of one. Where "
              "all threads of a warp take the same, different warps may take different paths at no cost. Every thread does "
              "4096 multiply-adds, by code of its path.",
          .axes = {WordAxis("paths_differ_by", "whose paths are different", {"thread", "warp"}),
                   IntegerAxis("paths", "that there are", 1, kMaxPaths, {1, 2, 4, 8, 16, 32})},
          .plot = {.x_axis = "paths", .y = "flops_per_second"},
          .unsupported_reason =
              [](const device::DeviceInfo& device) {
                return std::string(device.type == device::DeviceType::kCpu
                                       ? "a CPU's threads have program counters of their own, so none waits for another's path"
                                       : "");
              },
          .make_subject = &Make,
          .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
