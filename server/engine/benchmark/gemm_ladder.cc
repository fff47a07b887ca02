#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/microbench/access_pattern.h"
#include "kernels/microbench/gemm_ladder.h"
#include "kernels/microbench/microbench.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/gemm_ladder.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::DataType;
using kernels::microbench::GemmRung;
using kernels::microbench::GemmRungParams;
using kernels::microbench::TransposeMethod;
using kernels::microbench::TransposeParams;

constexpr std::int64_t kCheckStep = 37;  // rows and columns of C between those that are compared

struct Matrices {
  Buffer a, b, b_transposed, c, workspace;
};

GemmRung RungOf(const std::string& name) {
  if (name == "naive") return GemmRung::kNaive;
  if (name == "reordered") return GemmRung::kReordered;
  if (name == "blocked") return GemmRung::kBlocked;
  return name == "tiled" ? GemmRung::kTiled : GemmRung::kLibrary;
}

absl::Status Check(device::Lane& lane, const Matrices& matrices, std::int64_t size) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> a, ReadFloats(lane, matrices.a, size * size));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> b, ReadFloats(lane, matrices.b, size * size));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> c, ReadFloats(lane, matrices.c, size * size));
  for (std::int64_t i = 0; i < size; i += kCheckStep) {
    for (std::int64_t j = 0; j < size; j += kCheckStep) {
      double want = 0, magnitude = 0;
      for (std::int64_t k = 0; k < size; ++k) {
        const double term = static_cast<double>(a[i * size + k]) * b[k * size + j];
        want += term;
        magnitude += std::abs(term);
      }
      const double tolerance = 0x1p-24 * magnitude * static_cast<double>(size + 2);
      RIDGELINE_RETURN_IF_ERROR(ExpectNear(absl::StrCat("element ", i, ", ", j), c[i * size + j], want, tolerance));
    }
  }
  return absl::OkStatus();
}

// What the register-tiled rung needs beside the rest.
absl::Status PrepareTiled(const PointContext& context, std::int64_t size, Matrices& matrices) {
  RIDGELINE_ASSIGN_OR_RETURN(matrices.b_transposed, EmptyFloats(context, size * size));
  RIDGELINE_ASSIGN_OR_RETURN(matrices.workspace,
                             context.lane.Allocate(kernels::microbench::GemmWorkspaceBytesOnCpu(
                                 DataType::kFloat32, size, size, size, context.device.info().compute_units)));
  return context.lane.Run(TransposeParams{.method = TransposeMethod::kTiles,
                                          .source = static_cast<const float*>(matrices.b.data()),
                                          .destination = static_cast<float*>(matrices.b_transposed.data()),
                                          .size = size,
                                          .source_stride = size,
                                          .destination_stride = size});
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  const std::int64_t size = context.values.Integer("size");
  const GemmRung rung = RungOf(context.values.Word("rung"));
  auto matrices = std::make_shared<Matrices>();
  RIDGELINE_ASSIGN_OR_RETURN(matrices->a, RandomFloats(context, size * size));
  RIDGELINE_ASSIGN_OR_RETURN(matrices->b, RandomFloats(context, size * size, /*stream=*/1));
  RIDGELINE_ASSIGN_OR_RETURN(matrices->c, EmptyFloats(context, size * size));
  if (rung == GemmRung::kTiled) RIDGELINE_RETURN_IF_ERROR(PrepareTiled(context, size, *matrices));
  const GemmRungParams params{.rung = rung,
                              .m = size,
                              .n = size,
                              .k = size,
                              .a = static_cast<const float*>(matrices->a.data()),
                              .b = static_cast<const float*>(matrices->b.data()),
                              .b_transposed = static_cast<const float*>(matrices->b_transposed.data()),
                              .c = static_cast<float*>(matrices->c.data()),
                              .workspace = matrices->workspace.data()};
  return Subject{.kernel = absl::StrCat("gemm_cpu[", context.values.Word("rung"), "]"),
                 .flops = 2 * size * size * size,
                 .bytes = 3 * size * size * 4,
                 .workspace_bytes = matrices->workspace.size_bytes(),
                 .queue = [params, matrices](device::Lane& lane) { return lane.Run(params); },
                 .check = [&lane = context.lane, matrices, size] { return Check(lane, *matrices, size); }};
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  std::int64_t largest = 0;
  for (const Point& point : points) largest = std::max(largest, point.values.Integer("size"));
  const auto at = [&](const std::string& rung) {
    return Find(points, [=](const Point& point) {
      return point.values.Word("rung") == rung && point.values.Integer("size") == largest;
    });
  };
  const Point* const naive = at("naive");
  const Point* const tiled = at("tiled");
  const Point* const library = at("library");
  if (naive == nullptr || tiled == nullptr || library == nullptr) return NotEnoughPoints("the rungs naive, tiled and library");
  const double climbed = SpeedUp(*naive, *tiled);
  const double of_library = SpeedUp(*library, *tiled);
  return {.verdict = VerdictOf(climbed > 5),
          .explanation = absl::StrFormat("at %d the top rung is %.3g times as fast as the bottom one, and has %.0f %% of the "
                                         "library's rate",
                                         largest, climbed, 100 * of_library),
          .findings = {{"tiled_over_naive", climbed, "at the largest size"},
                       {"tiled_over_library", of_library, "at the largest size"}}};
}

Benchmark OnCpu() {
  return {.name = "gemm_ladder",
          .claim =
              "The same product, several times faster with each idea: read along rows, keep blocks in the cache, keep tiles "
              "of the result in registers. Sizes beside a power of two show what alignment is worth. float32, square.",
          .axes = {WordAxis("rung", "of the ladder", {"naive", "reordered", "blocked", "tiled", "library"}),
                   IntegerAxis("size", "rows and columns of each matrix", 16, 16384, {128, 255, 256, 257, 512})},
          .plot = {.x_axis = "size", .y = "flops_per_second"},
          .unsupported_reason = &AnyDeviceWillDo,
          .make_subject = &Make,
          .judge = &Judge};
}

}  // namespace

Benchmark GemmLadder(device::DeviceType type) { return type == device::DeviceType::kCpu ? OnCpu() : GemmLadderOnCuda(); }

}  // namespace ridgeline::engine::benchmark
