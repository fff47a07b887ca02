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

constexpr char kName[] = "coalescing";
constexpr std::int64_t kStructureFields = 8;
constexpr std::int64_t kPadding = 16;  // elements: one line of a CPU's cache

// What is accessed, large and small enough for the device.
struct Sizes {
  std::int64_t footprint_elements;  // beyond the caches
  std::int64_t copy_elements, copy_passes;
  std::int64_t matrix_size;
};
// A copy of 8 KiB stays in the first cache: from memory alignment is free. A GPU's warps see it from memory, too.
constexpr Sizes kCpuSizes = {16 << 20, 2048, 4096, 4096};
constexpr Sizes kCudaSizes = {64 << 20, 64 << 20, 1, 8192};

const Sizes& SizesOf(const PointContext& context) {
  return context.device.info().type == device::DeviceType::kCpu ? kCpuSizes : kCudaSizes;
}

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
  const std::int64_t footprint = SizesOf(context).footprint_elements;
  auto arrays = std::make_shared<Arrays>();
  RIDGELINE_ASSIGN_OR_RETURN(arrays->source, RandomFloats(context, footprint));
  RIDGELINE_ASSIGN_OR_RETURN(arrays->destination, EmptyFloats(context, num_slices));
  const StridedParams params{.source = static_cast<const float*>(arrays->source.data()),
                             .count = footprint / stride,
                             .stride = stride,
                             .slice_sums = static_cast<float*>(arrays->destination.data())};
  return Subject{
      .kernel = absl::StrCat(KernelName(context, "strided"), "[stride=", stride, "]"),
      .flops = params.count,
      .bytes = params.count * 4,
      .queue = [params, arrays](device::Lane& lane) { return lane.Run(params); },
      .check = [&lane = context.lane, params, arrays, num_slices] { return CheckStrided(lane, *arrays, params, num_slices); }};
}

absl::Status CheckSame(device::Lane& lane, const Arrays& arrays, std::int64_t offset, std::int64_t elements) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> from, ReadFloats(lane, arrays.source, offset + elements));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> to, ReadFloats(lane, arrays.destination, offset + elements));
  if (std::equal(from.begin() + offset, from.end(), to.begin() + offset)) return absl::OkStatus();
  return absl::InternalError("the copy differs from its source");
}

// Buffers begin at a line; an offset of so many elements makes every vector that is longer cross one.
absl::StatusOr<Subject> MakeMisaligned(const PointContext& context, std::int64_t offset) {
  const auto [footprint, elements, passes, matrix_size] = SizesOf(context);
  auto arrays = std::make_shared<Arrays>();
  RIDGELINE_ASSIGN_OR_RETURN(arrays->source, RandomFloats(context, offset + elements));
  RIDGELINE_ASSIGN_OR_RETURN(arrays->destination, EmptyFloats(context, offset + elements));
  const VectorCopyParams params{.source = static_cast<const float*>(arrays->source.data()) + offset,
                                .destination = static_cast<float*>(arrays->destination.data()) + offset,
                                .elements = elements,
                                .passes = passes};
  return Subject{
      .kernel = absl::StrCat(KernelName(context, "vector_copy"), "[offset=", offset, ",passes=", passes, "]"),
      .bytes = 2 * elements * 4 * passes,
      .queue = [params, arrays](device::Lane& lane) { return lane.Run(params); },
      .check = [&lane = context.lane, arrays, offset, count = elements] { return CheckSame(lane, *arrays, offset, count); }};
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
                         .size = SizesOf(context).matrix_size,
                         .source_stride = SizesOf(context).matrix_size,
                         .destination_stride = SizesOf(context).matrix_size + padding};
  auto arrays = std::make_shared<Arrays>();
  RIDGELINE_ASSIGN_OR_RETURN(arrays->source, RandomFloats(context, params.size * params.source_stride));
  RIDGELINE_ASSIGN_OR_RETURN(arrays->destination, EmptyFloats(context, params.size * params.destination_stride));
  params.source = static_cast<const float*>(arrays->source.data());
  params.destination = static_cast<float*>(arrays->destination.data());
  return Subject{.kernel = absl::StrCat(KernelName(context, "transpose"), "[", context.values.Word("pattern"), "]"),
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
  if (pattern == "transpose_naive") return MakeTranspose(context, TransposeMethod::kRows, 0);
  if (pattern == "transpose_shared") return MakeTranspose(context, TransposeMethod::kTiles, 0);
  if (pattern == "transpose_shared_padded") return MakeTranspose(context, TransposeMethod::kPaddedTiles, 0);
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
  const auto compare = [&](const char* finding, const char* slow, const char* fast, const char* what) {
    const Point* const slower = at(slow, 1);
    const Point* const faster = at(fast, 1);
    if (slower != nullptr && faster != nullptr) judgement.findings.push_back({finding, SpeedUp(*slower, *faster), what});
  };
  compare("transpose_tiled_speed_up", "transpose_rows", "transpose_tiled", "tiles over plain rows");
  compare("transpose_shared_speed_up", "transpose_naive", "transpose_shared", "tiles in shared memory over plain rows");
  compare("transpose_padding_speed_up", "transpose_shared", "transpose_shared_padded", "what bank conflicts cost");
  return judgement;
}

Benchmark OnCpu() {
  return {
      .name = kName,
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
      .unsupported_reason = &AnyDeviceWillDo,
      .makes_sense = &MakesSense,
      .make_subject = &Make,
      .judge = &Judge};
}

Benchmark OnCuda() {
  Benchmark benchmark = OnCpu();
  benchmark.claim =
      "A warp's accesses are served together, by lines of 128 bytes in sectors of 32: bytes that are fetched and not used cost "
      "as much as those that are. Stride: one element in `step` of 256 MiB is read. Misaligned: a copy of 256 MiB whose warps "
      "begin `step` elements beyond a line. Structures: one field of eight, against an array of that field. Transposition of "
      "an 8192 x 8192 matrix: naive, through tiles in shared memory, whose columns lie in one bank, and with those tiles "
      "padded.";
  benchmark.axes[0] = WordAxis(
      "pattern", "the order of access",
      {"stride", "misaligned", "arrays", "structures", "transpose_naive", "transpose_shared", "transpose_shared_padded"});
  return benchmark;
}

}  // namespace

Benchmark Coalescing(device::DeviceType type) { return type == device::DeviceType::kCpu ? OnCpu() : OnCuda(); }

}  // namespace ridgeline::engine::benchmark
