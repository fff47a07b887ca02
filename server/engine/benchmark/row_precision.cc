#include "server/engine/benchmark/row_precision.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/fused_row.h"
#include "server/engine/benchmark/host_tensor.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::DataType;
using kernels::fused::FusedParams;
using kernels::fused::FusedShape;
using kernels::fused::Mode;

constexpr std::int64_t kCheckedRows = 16;

struct Rows {
  FusedShape shape;
  Buffer exact, input, output;
  double error_squares = 0, squares = 0;  // over the rows that were compared
};

// Right is what the inputs as they were rounded give; the error is told against what the exact ones give.
absl::Status Check(device::Lane& lane, Rows& rows) {
  const FusedShape& shape = rows.shape;
  RIDGELINE_ASSIGN_OR_RETURN(const HostTensor exact, HostTensor::Read(lane, rows.exact, DataType::kFloat32, shape.row_elems));
  RIDGELINE_ASSIGN_OR_RETURN(const HostTensor input, HostTensor::Read(lane, rows.input, shape.data_type, shape.row_elems));
  RIDGELINE_ASSIGN_OR_RETURN(const HostTensor output, HostTensor::Read(lane, rows.output, shape.data_type, shape.row_elems));
  for (std::int64_t i = 0; i < kCheckedRows; ++i) {
    const std::int64_t row = shape.num_rows * i / kCheckedRows;
    const auto elements_of = [&](const HostTensor& tensor) {
      const std::vector<float> values = tensor.Row(row);
      return FusedRow(shape, {.input = values.data(), .other = nullptr, .weight = nullptr, .bias = nullptr, .row_idx = row});
    };
    const std::vector<FusedElement> right = elements_of(input), wanted = elements_of(exact);
    const std::vector<float> got = output.Row(row);
    for (std::int64_t c = 0; c < shape.row_elems; ++c) {
      const double tolerance = FusedTolerance(shape, Mode::kFused, right[c]);
      RIDGELINE_RETURN_IF_ERROR(ExpectNear(absl::StrCat("element ", row, ", ", c), got[c], right[c].value, tolerance));
      rows.squares += wanted[c].value * wanted[c].value;
      rows.error_squares += (got[c] - wanted[c].value) * (got[c] - wanted[c].value);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Subject> MakeRowPrecision(const PointContext& context, kernels::fused::Op op, DataType type) {
  const std::int64_t size = context.values.Integer("size");
  const auto rows = std::make_shared<Rows>();
  rows->shape.op = op;
  rows->shape.data_type = type;
  rows->shape.num_rows = 4 * size;
  rows->shape.row_elems = size;
  const std::int64_t elements = rows->shape.num_rows * size, bytes = elements * kernels::ElementBytes(type);
  RIDGELINE_ASSIGN_OR_RETURN(rows->exact, RandomFloats(context, elements));
  RIDGELINE_ASSIGN_OR_RETURN(rows->input, context.lane.UploadRandom(type, elements, context.seed, 0, 1));
  RIDGELINE_ASSIGN_OR_RETURN(rows->output, context.lane.Allocate(bytes));
  const FusedParams params{.shape = rows->shape, .input = rows->input.data(), .output = rows->output.data()};
  return Subject{.kernel = absl::StrCat(context.values.Word("operation"), "[", kernels::Name(type), ",rows=", 4 * size,
                                        ",columns=", size, "]"),
                 .data_type = type,
                 .bytes = 2 * bytes,
                 .queue = [params, rows](device::Lane& lane) { return lane.Fuse(params, Mode::kFused, nullptr); },
                 .check = [&lane = context.lane, rows] { return Check(lane, *rows); },
                 .figures =
                     [rows](double /*seconds*/) {
                       return std::map<std::string, double>{{"relative_error", std::sqrt(rows->error_squares / rows->squares)}};
                     }};
}

}  // namespace ridgeline::engine::benchmark
