// compute_peak on CUDA devices: multiply-adds of CUDA cores, and the matrix unit by either of its instructions.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/microbench/compute_peak.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/compute_peak.h"
#include "server/engine/benchmark/matrix_types.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::microbench::CudaFmaParams;
using kernels::microbench::FmaType;
using kernels::microbench::MatrixPeakParams;
using kernels::microbench::MatrixUnit;

// Of one multiprocessor in one run: a tenth of a millisecond and more, whatever the rate.
constexpr std::int64_t kFmaOperations = std::int64_t{1} << 27;
constexpr std::int64_t kLeastFmaIterations = 1 << 14;
constexpr std::int64_t kMatrixFlops = std::int64_t{1} << 31;
constexpr std::int64_t kLeastMatrixIterations = 1 << 12;

constexpr std::int64_t kMostMmaWarps = 16;

absl::StatusOr<Subject> MakeFma(const PointContext& context) {
  CudaFmaParams params{.type = context.values.Word("type") == "float32" ? FmaType::kFloat32 : FmaType::kFloat64,
                       .chains = static_cast<int>(context.values.Integer("chains")),
                       .warps = static_cast<int>(context.values.Integer("warps")),
                       .iterations = 0,
                       .results = nullptr};
  const std::int64_t threads = 32 * params.warps, all_threads = threads * context.device.info().compute_units;
  params.iterations = std::max(kLeastFmaIterations, kFmaOperations / (threads * params.chains));
  RIDGELINE_ASSIGN_OR_RETURN(Buffer allocated, context.lane.Allocate(all_threads * 8));
  const auto results = std::make_shared<Buffer>(std::move(allocated));
  params.results = static_cast<double*>(results->data());
  return Subject{.kernel = absl::StrCat("fma_cuda[chains=", params.chains, ",warps=", params.warps, "]"),
                 .has_roof = params.type == FmaType::kFloat32,
                 .flops = 2 * all_threads * params.chains * params.iterations,
                 .queue = [params, results](device::Lane& lane) { return lane.Run(params); },
                 .check =
                     [&lane = context.lane, params, results] {
                       return CheckFmaSums(lane, *results, results->size_bytes() / 8, params.type, params.chains,
                                           params.iterations);
                     }};
}

// All sums are small whole numbers: no rounding excuses a difference.
absl::Status CheckProducts(device::Lane& lane, const Buffer& results, const MatrixPeakParams& params) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> sums, ReadFloats(lane, results, results.size_bytes() / 4));
  const bool is_mma = params.unit == MatrixUnit::kMma;
  const std::int64_t rows = is_mma ? kernels::microbench::kMmaRows : kernels::microbench::kWgmmaRows;
  const std::int64_t columns = is_mma ? kernels::microbench::kMmaColumns : kernels::microbench::kWgmmaColumns;
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(sums.size()); ++at) {
    const std::int64_t i = at / columns % rows, j = at % columns;
    const std::int64_t chain = at / (rows * columns) % params.chains;
    const auto want = static_cast<double>(MatrixDepth(params) * (1 + i % 4) * (1 + j % 4) + chain);
    if (sums[at] != want) return ExpectNear(absl::StrCat("element ", i, ", ", j, " of a tile"), sums[at], want, 0);
  }
  return absl::OkStatus();
}

absl::StatusOr<Subject> MakeProducts(const PointContext& context, MatrixUnit unit) {
  const MatrixTypeRow& type = *FindMatrixType(context.values.Word("type"));
  const device::DeviceInfo& device = context.device.info();
  RIDGELINE_RETURN_IF_ERROR(CheckMatrixUnit(device, unit, type));
  MatrixPeakParams params{.unit = unit,
                          .type = type.type,
                          .chains = static_cast<int>(context.values.Integer("chains")),
                          .warps = static_cast<int>(context.values.Integer("warps")),
                          .iterations = 0,
                          .results = nullptr};
  params.iterations = std::max(kLeastMatrixIterations, kMatrixFlops / (2 * MatrixSlotFlops(params)));
  RIDGELINE_ASSIGN_OR_RETURN(Buffer allocated, EmptyFloats(context, device.compute_units * MatrixSlotResults(params)));
  const auto results = std::make_shared<Buffer>(std::move(allocated));
  params.results = static_cast<float*>(results->data());
  return Subject{.kernel = absl::StrCat(unit == MatrixUnit::kMma ? "mma" : "wgmma", "_cuda[", type.name,
                                        ",chains=", params.chains, ",warps=", params.warps, "]"),
                 .data_type = type.data_type,
                 .has_roof = type.has_roof,
                 .flops = device.compute_units * MatrixSlotFlops(params),
                 .queue = [params, results](device::Lane& lane) { return lane.Run(params); },
                 .check = [&lane = context.lane, params, results] { return CheckProducts(lane, *results, params); }};
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  const std::string& unit = context.values.Word("unit");
  if (unit == "fma") return MakeFma(context);
  return MakeProducts(context, unit == "mma" ? MatrixUnit::kMma : MatrixUnit::kWgmma);
}

// The matrix unit has no float32 and CUDA cores none of the short types; a wgmma is a warpgroup's, and its sums are one chain.
bool MakesSense(const AxisValues& values) {
  const std::string& unit = values.Word("unit");
  const std::int64_t warps = values.Integer("warps");
  const bool is_matrix_type = FindMatrixType(values.Word("type")) != nullptr;
  if (unit == "fma") return !is_matrix_type;
  if (unit == "mma") return is_matrix_type && warps <= kMostMmaWarps;
  return is_matrix_type && values.Integer("chains") == 1 && (warps == 4 || warps == 8);
}

double BestRate(absl::Span<const Point> points, const std::string& unit, const std::string& type) {
  double best = 0;
  for (const Point& point : points) {
    if (point.values.Word("unit") == unit && point.values.Word("type") == type) {
      best = std::max(best, point.report.flops_per_second);
    }
  }
  return best;
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  const double fma = BestRate(points, "fma", "float32");
  const double matrix = std::max(BestRate(points, "mma", "bfloat16"), BestRate(points, "wgmma", "bfloat16"));
  const auto few = Find(points, [](const Point& point) {
    return point.values.Word("unit") == "fma" && point.values.Word("type") == "float32" &&
           point.values.Integer("chains") == 1 && point.values.Integer("warps") <= 4;
  });
  if (few == nullptr || matrix == 0)
    return NotEnoughPoints("float32 on fma, with one chain in few warps too, and bfloat16 products");
  const double hidden = fma / few->report.flops_per_second;
  Judgement judgement{
      .verdict = VerdictOf(hidden > 2 && matrix > 4 * fma),
      .explanation = absl::StrFormat("chains and warps together compute %s, few warps with one chain each %s; the matrix unit "
                                     "has %.3g times the float32 rate for bfloat16",
                                     RateText(fma, "FLOP"), RateText(few->report.flops_per_second, "FLOP"), matrix / fma)};
  for (const char* unit : {"fma", "mma", "wgmma"}) {
    for (const char* type : {"float32", "float64", "tf32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "int8"}) {
      const double best = BestRate(points, unit, type);
      if (best > 0) judgement.findings.push_back({absl::StrCat(unit, "_", type, "_flops_per_second"), best, "the best point"});
    }
  }
  return judgement;
}

}  // namespace

Benchmark ComputePeakOnCuda() {
  return {
      .name = "compute_peak",
      .claim =
          "Arithmetic reaches its peak only when enough independent operations are under way to hide each other's "
          "latency: chains in a thread, or warps. The matrix unit computes many times faster than CUDA cores, the "
          "faster the shorter its type; mma is its instruction of every chip, wgmma that of Hopper. Operands lie in "
          "registers, of wgmma in shared memory; no memory is touched.",
      .axes = {WordAxis("unit", "what computes: CUDA cores, or the matrix unit by either instruction", {"fma", "mma", "wgmma"}),
               WordAxis("type", "of the inputs",
                        {"float32", "float64", "tf32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "int8"}),
               Axis{.name = "chains",
                    .description = "independent chains of a thread, or tiles of sums of a warp; 1 with wgmma",
                    .default_values = {"1", "8"},
                    .choices = {"1", "2", "4", "8"}},
               Axis{.name = "warps",
                    .description = "on each multiprocessor; at most 16 with mma, 4 or 8 with wgmma",
                    .default_values = {"4", "8", "32"},
                    .choices = {"1", "4", "8", "16", "32"}}},
      .plot = {.x_axis = "warps", .y = "flops_per_second"},
      .unsupported_reason = &AnyDeviceWillDo,
      .makes_sense = &MakesSense,
      .make_subject = &Make,
      .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
