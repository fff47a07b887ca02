#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/microbench/access_pattern.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::microbench::StridedParams;
using kernels::microbench::TransposeMethod;
using kernels::microbench::TransposeParams;
using kernels::microbench::VectorCopyParams;

constexpr std::int64_t kFootprintElements = 16 << 20;  // 64 MiB: beyond the caches
constexpr std::int64_t kCopyElements = 2048;           // 8 KiB, which stay in the first cache: from memory alignment is free
constexpr std::int64_t kCopyPasses = 4096;
constexpr std::int64_t kStructureFields = 8;
constexpr std::int64_t kMatrixSize = 4096;
constexpr std::int64_t kPadding = 16;  // elements: one line

struct Arrays {
  Buffer source, destination;
};

absl::Status CheckStrided(device::Lane& lane, const Arrays& arrays, const StridedParams& params, int num_slices) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> source, ReadFloats(lane, arrays.source, params.count * params.stride));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> sums, ReadFloats(lane, arrays.destination, num_slices));
  double got = 0, want = 0, magnitude = 0;
  for (const float sum : sums) got += sum;
  for (std::int64_t i = 0; i < params.count; ++i) {
    want += source[i * params.stride];
    magnitude += std::abs(source[i * params.stride]);
  }
  return ExpectNear("the sum", got, want, 1e-4 * magnitude);
}

absl::StatusOr<Subject> MakeStrided(const PointContext& context, std::int64_t stride) {
  const int num_slices = context.device.info().compute_units;
  auto arrays = std::make_shared<Arrays>();
  RIDGELINE_ASSIGN_OR_RETURN(arrays->source, RandomFloats(context, kFootprintElements));
  RIDGELINE_ASSIGN_OR_RETURN(arrays->destination, EmptyFloats(context, num_slices));
  const StridedParams params{.source = static_cast<const float*>(arrays->source.data()),
                             .count = kFootprintElements / stride,
                             .stride = stride,
                             .slice_sums = static_cast<float*>(arrays->destination.data())};
  return Subject{
      .kernel = absl::StrCat("strided_cpu[stride=", stride, "]"),
      .flops = params.count,
      .bytes = params.count * 4,
      .queue = [params, arrays](device::Lane& lane) { return lane.Run(params); },
      .check = [&lane = context.lane, params, arrays, num_slices] { return CheckStrided(lane, *arrays, params, num_slices); }};
}

absl::Status CheckSame(device::Lane& lane, const Arrays& arrays, std::int64_t offset) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> from, ReadFloats(lane, arrays.source, offset + kCopyElements));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> to, ReadFloats(lane, arrays.destination, offset + kCopyElements));
  if (std::equal(from.begin() + offset, from.end(), to.begin() + offset)) return absl::OkStatus();
  return absl::InternalError("the copy differs from its source");
}

// Buffers begin at a line; an offset of so many elements makes every vector that is longer cross one.
absl::StatusOr<Subject> MakeMisaligned(const PointContext& context, std::int64_t offset) {
  auto arrays = std::make_shared<Arrays>();
  RIDGELINE_ASSIGN_OR_RETURN(arrays->source, RandomFloats(context, offset + kCopyElements));
  RIDGELINE_ASSIGN_OR_RETURN(arrays->destination, EmptyFloats(context, offset + kCopyElements));
  const VectorCopyParams params{.source = static_cast<const float*>(arrays->source.data()) + offset,
                                .destination = static_cast<float*>(arrays->destination.data()) + offset,
                                .elements = kCopyElements,
                                .passes = kCopyPasses};
  return Subject{.kernel = absl::StrCat("vector_copy_cpu[offset=", offset, ",passes=", kCopyPasses, "]"),
                 .bytes = 2 * kCopyElements * 4 * kCopyPasses,
                 .queue = [params, arrays](device::Lane& lane) { return lane.Run(params); },
                 .check = [&lane = context.lane, arrays, offset] { return CheckSame(lane, *arrays, offset); }};
}

absl::Status CheckTransposed(device::Lane& lane, const Arrays& arrays, const TransposeParams& params) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> from,
                             ReadFloats(lane, arrays.source, params.size * params.source_stride));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> to,
                             ReadFloats(lane, arrays.destination, params.size * params.destination_stride));
  for (std::int64_t i = 0; i < params.size; ++i) {
    for (std::int64_t j = 0; j < params.size; ++j) {
      const float got = to[j * params.destination_stride + i], want = from[i * params.source_stride + j];
      if (got != want) return ExpectNear(absl::StrCat("element ", j, ", ", i), got, want, 0);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Subject> MakeTranspose(const PointContext& context, TransposeMethod method, std::int64_t padding) {
  TransposeParams params{.method = method,
                         .source = nullptr,
                         .destination = nullptr,
                         .size = kMatrixSize,
                         .source_stride = kMatrixSize,
                         .destination_stride = kMatrixSize + padding};
  auto arrays = std::make_shared<Arrays>();
  RIDGELINE_ASSIGN_OR_RETURN(arrays->source, RandomFloats(context, params.size * params.source_stride));
  RIDGELINE_ASSIGN_OR_RETURN(arrays->destination, EmptyFloats(context, params.size * params.destination_stride));
  params.source = static_cast<const float*>(arrays->source.data());
  params.destination = static_cast<float*>(arrays->destination.data());
  return Subject{.kernel = absl::StrCat("transpose_cpu[", context.values.Word("pattern"), "]"),
                 .bytes = 2 * params.size * params.size * 4,
                 .queue = [params, arrays](device::Lane& lane) { return lane.Run(params); },
                 .check = [&lane = context.lane, params, arrays] { return CheckTransposed(lane, *arrays, params); }};
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  const std::string& pattern = context.values.Word("pattern");
  const std::int64_t step = context.values.Integer("step");
  if (pattern == "stride") return MakeStrided(context, step);
  if (pattern == "misaligned") return MakeMisaligned(context, step);
  if (pattern == "structures") return MakeStrided(context, kStructureFields);
  if (pattern == "arrays") return MakeStrided(context, 1);
  if (pattern == "transpose_tiled") return MakeTranspose(context, TransposeMethod::kTiles, 0);
  return MakeTranspose(context, TransposeMethod::kRows, pattern == "transpose_padded" ? kPadding : 0);
}

// A step means something to a stride and to an offset; the others have one point, at step 1.
bool MakesSense(const AxisValues& values) {
  const std::string& pattern = values.Word("pattern");
  return pattern == "stride" || pattern == "misaligned" || values.Integer("step") == 1;
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  const auto at = [&](const std::string& pattern, std::int64_t step) {
    return Find(points, [=](const Point& point) {
      return point.values.Word("pattern") == pattern && point.values.Integer("step") == step;
    });
  };
  const Point* const dense = at("stride", 1);
  const Point* const sparse = at("stride", 16);
  if (dense == nullptr || sparse == nullptr) return NotEnoughPoints("strides of 1 and of 16");
  const double loss = dense->report.bytes_per_second / sparse->report.bytes_per_second;
  Judgement judgement{.verdict = VerdictOf(loss > 3),
                      .explanation = absl::StrFormat(
                          "one element of each line: %s of useful bytes, dense %s, %.3g times as many",
                          RateText(sparse->report.bytes_per_second, "B"), RateText(dense->report.bytes_per_second, "B"), loss),
                      .findings = {{"dense_over_stride_16", loss, "useful bandwidth of dense access over that of stride 16"}}};
  const Point* const rows = at("transpose_rows", 1);
  const Point* const tiled = at("transpose_tiled", 1);
  if (rows != nullptr && tiled != nullptr) {
    judgement.findings.push_back({"transpose_tiled_speed_up", SpeedUp(*rows, *tiled), "tiles over plain rows"});
  }
  return judgement;
}

}  // namespace

Benchmark Coalescing() {
  return {
      .name = "coalescing",
      .claim =
          "Memory moves in whole lines: bytes that are fetched and not used cost as much as those that are. "
          "Stride: one element in `step` of 64 MiB is read. Misaligned: vectors that begin `step` elements beyond a "
          "line, in the first cache. Structures: one field of eight, against an array of that field. Transposition of "
          "a 4096 x 4096 matrix: by rows, with rows padded by a line, and by tiles.",
      .axes = {WordAxis(
                   "pattern", "the order of access",
                   {"stride", "misaligned", "arrays", "structures", "transpose_rows", "transpose_padded", "transpose_tiled"}),
               IntegerAxis("step", "elements of 4 bytes; 1 for patterns that have none", 1, 4096, {1, 2, 4, 8, 16, 32, 64})},
      .plot = {.x_axis = "step", .y = "bytes_per_second"},
      .unsupported_reason = &NeedsCpuDevice,
      .makes_sense = &MakesSense,
      .make_subject = &Make,
      .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
