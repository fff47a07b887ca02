// gemm_ladder on CUDA devices: float32 on CUDA cores, bfloat16 on the matrix unit, each beside cuBLAS.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/common/convert.h"
#include "kernels/microbench/gemm_ladder.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/gemm_ladder.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::DataType;
using kernels::microbench::CudaGemmRung;
using kernels::microbench::CudaGemmRungParams;

// Rows and columns of C of which elements are compared, at most: spread over it by steps that no tile divides.
constexpr std::int64_t kCheckedRows = 61;

// The bottom rung takes minutes beyond this.
constexpr std::int64_t kMostNaive = 4200;

struct RungRow {
  const char* name;
  CudaGemmRung rung;
  DataType type;
};

constexpr RungRow kRungs[] = {{"naive", CudaGemmRung::kNaive, DataType::kFloat32},
                              {"coalesced", CudaGemmRung::kCoalesced, DataType::kFloat32},
                              {"shared_tiles", CudaGemmRung::kSharedTiles, DataType::kFloat32},
                              {"register_tiles", CudaGemmRung::kRegisterTiles, DataType::kFloat32},
                              {"library_float32", CudaGemmRung::kLibrary, DataType::kFloat32},
                              {"mma", CudaGemmRung::kMma, DataType::kBFloat16},
                              {"wgmma", CudaGemmRung::kWgmma, DataType::kBFloat16},
                              {"library_bfloat16", CudaGemmRung::kLibrary, DataType::kBFloat16}};

const RungRow& RungOf(const PointContext& context) {
  const std::string& name = context.values.Word("rung");
  return *std::find_if(std::begin(kRungs), std::end(kRungs), [&](const RungRow& row) { return name == row.name; });
}

struct Matrices {
  Buffer a, b, b_transposed, c;
};

// B in the order that the rung reads; of random elements either will do.
absl::StatusOr<std::shared_ptr<Matrices>> MakeMatrices(const PointContext& context, const RungRow& row, std::int64_t size) {
  const auto matrices = std::make_shared<Matrices>();
  const auto fill = [&](std::uint64_t stream) {
    return context.lane.UploadRandom(row.type, size * size, context.seed + stream, 0, 1);
  };
  RIDGELINE_ASSIGN_OR_RETURN(matrices->a, fill(0));
  RIDGELINE_ASSIGN_OR_RETURN(matrices->c, EmptyFloats(context, size * size));
  const bool reads_columns = row.type == DataType::kFloat32 && row.rung != CudaGemmRung::kLibrary;
  Buffer& b = reads_columns ? matrices->b : matrices->b_transposed;
  RIDGELINE_ASSIGN_OR_RETURN(b, fill(1));
  return matrices;
}

absl::StatusOr<std::vector<float>> ReadMatrix(device::Lane& lane, const Buffer& buffer, DataType type, std::int64_t elements) {
  RIDGELINE_ASSIGN_OR_RETURN(const auto host, measure::ReadBack(lane, buffer, elements * kernels::ElementBytes(type)));
  std::vector<float> floats(elements);
  kernels::ConvertToFloat32(type, host->data(), elements, floats.data());
  return floats;
}

absl::Status Check(device::Lane& lane, const Matrices& matrices, DataType type, std::int64_t size) {
  const bool is_transposed = matrices.b.size_bytes() == 0;
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> a, ReadMatrix(lane, matrices.a, type, size * size));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> b,
                             ReadMatrix(lane, is_transposed ? matrices.b_transposed : matrices.b, type, size * size));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> c, ReadFloats(lane, matrices.c, size * size));
  const std::int64_t step = std::max<std::int64_t>(1, size / kCheckedRows);
  for (std::int64_t i = 0; i < size; i += step) {
    for (std::int64_t j = 0; j < size; j += step) {
      double want = 0, magnitude = 0;
      for (std::int64_t k = 0; k < size; ++k) {
        const double term = static_cast<double>(a[i * size + k]) * (is_transposed ? b[j * size + k] : b[k * size + j]);
        want += term;
        magnitude += std::abs(term);
      }
      // The matrix unit cuts off where others round: twice the error.
      const double tolerance = (type == DataType::kFloat32 ? 0x1p-24 : 0x1p-23) * magnitude * static_cast<double>(size + 2);
      RIDGELINE_RETURN_IF_ERROR(ExpectNear(absl::StrCat("element ", i, ", ", j), c[i * size + j], want, tolerance));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFits(const PointContext& context, const RungRow& row, std::int64_t size) {
  if (row.rung != CudaGemmRung::kWgmma) return absl::OkStatus();
  const std::string& instruction_set = context.device.info().instruction_set;
  if (instruction_set != "sm_90") {
    return absl::UnimplementedError(absl::StrCat("wgmma is an instruction of sm_90; this device is ", instruction_set));
  }
  if (kernels::microbench::WgmmaRungFits(size, size)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the copy engine (TMA) takes rows of whole units of 16 bytes; ", size,
                                                 " elements of 2 are none: the highest rung here is mma"));
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  const std::int64_t size = context.values.Integer("size");
  const RungRow& row = RungOf(context);
  RIDGELINE_RETURN_IF_ERROR(CheckFits(context, row, size));
  RIDGELINE_ASSIGN_OR_RETURN(const std::shared_ptr<Matrices> matrices, MakeMatrices(context, row, size));
  const CudaGemmRungParams params{.rung = row.rung,
                                  .type = row.type,
                                  .m = size,
                                  .n = size,
                                  .k = size,
                                  .a = matrices->a.data(),
                                  .b = matrices->b.data(),
                                  .b_transposed = matrices->b_transposed.data(),
                                  .c = static_cast<float*>(matrices->c.data())};
  return Subject{
      .kernel = absl::StrCat("gemm_cuda[", row.name, "]"),
      .data_type = row.type,
      .flops = 2 * size * size * size,
      .bytes = 2 * size * size * kernels::ElementBytes(row.type) + size * size * 4,
      .queue = [params, matrices](device::Lane& lane) { return lane.Run(params); },
      .check = [&lane = context.lane, matrices, type = row.type, size] { return Check(lane, *matrices, type, size); }};
}

bool MakesSense(const AxisValues& values) { return values.Word("rung") != "naive" || values.Integer("size") <= kMostNaive; }

const Point* FindRung(absl::Span<const Point> points, const std::string& rung, std::int64_t size) {
  return Find(points,
              [&](const Point& point) { return point.values.Word("rung") == rung && point.values.Integer("size") == size; });
}

// The largest size that the rung was measured at.
const Point* FindLargest(absl::Span<const Point> points, const std::string& rung) {
  const Point* largest = nullptr;
  for (const Point& point : points) {
    if (point.values.Word("rung") != rung) continue;
    if (largest == nullptr || point.values.Integer("size") > largest->values.Integer("size")) largest = &point;
  }
  return largest;
}

// What sizes beside a multiple of eight lose of the library's rate.
void AddAlignment(absl::Span<const Point> points, const Point& aligned, const char* finding, Judgement& judgement) {
  const std::int64_t size = aligned.values.Integer("size");
  const Point* const beside = FindRung(points, aligned.values.Word("rung"), size + 1);
  if (beside == nullptr || size % 8 != 0) return;
  judgement.findings.push_back({finding, aligned.report.flops_per_second / beside->report.flops_per_second,
                                absl::StrCat("rate at ", size, " over that at ", size + 1)});
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  const Point* const naive = FindLargest(points, "naive");
  const Point* top = FindLargest(points, "wgmma");
  if (top == nullptr) top = FindLargest(points, "mma");
  if (naive == nullptr || top == nullptr) return NotEnoughPoints("the rung naive, and wgmma or mma");
  const std::string& top_name = top->values.Word("rung");
  const std::int64_t size = top->values.Integer("size");
  const Point* const library = FindRung(points, "library_bfloat16", size);
  const double climbed = top->report.flops_per_second / naive->report.flops_per_second;
  Judgement judgement{.verdict = VerdictOf(climbed > 20),
                      .explanation = absl::StrFormat("%s computes %s, the bottom rung %s: %.3g times as much", top_name,
                                                     RateText(top->report.flops_per_second, "FLOP"),
                                                     RateText(naive->report.flops_per_second, "FLOP"), climbed),
                      .findings = {{"top_over_naive", climbed, "ratio of rates, each at its largest size"}}};
  if (library != nullptr) {
    const double share = SpeedUp(*library, *top);
    absl::StrAppendFormat(&judgement.explanation, "; at %d it has %.0f %% of cuBLAS' rate", size, 100 * share);
    judgement.findings.push_back({"top_over_library", share, absl::StrCat("rate of ", top_name, " over cuBLAS' at ", size)});
  }
  for (const Point& point : points) {
    if (point.values.Word("rung") == "library_bfloat16") AddAlignment(points, point, "library_alignment", judgement);
    if (point.values.Word("rung") == "mma") AddAlignment(points, point, "mma_alignment", judgement);
  }
  return judgement;
}

}  // namespace

Benchmark GemmLadderOnCuda() {
  std::vector<std::string> names;
  for (const RungRow& row : kRungs) names.emplace_back(row.name);
  return {
      .name = "gemm_ladder",
      .claim =
          "The same product, faster with each idea: lanes that read along rows; tiles in shared memory; tiles of the result "
          "in registers, float32 so far; then bfloat16 on the matrix unit, by mma.sync, and by wgmma fed by the copy engine "
          "(TMA). Each beside cuBLAS, square. Sizes beside a multiple of eight show what alignment is worth: the copy engine "
          "cannot describe their rows at all. The bottom rung ends at 4200.",
      .axes = {WordAxis("rung", "of the ladder", names),
               IntegerAxis("size", "rows and columns of each matrix", 16, 32768, {1024, 4095, 4096, 4097, 8192})},
      .plot = {.x_axis = "size", .y = "flops_per_second"},
      .unsupported_reason = &AnyDeviceWillDo,
      .makes_sense = &MakesSense,
      .make_subject = &Make,
      .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
