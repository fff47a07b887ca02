#include "server/engine/benchmark/fused_check.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using kernels::fused::FusedShape;
using kernels::fused::Mode;
using Floats = std::vector<float>;

const float* DataOrNull(const Floats& floats) { return floats.empty() ? nullptr : floats.data(); }

// The sum that comes out beside a norm: one addition, rounded once.
absl::Status CheckSum(const FusedShape& shape, const Floats& input, const Floats& other, const Floats& sum) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double a = input[i], b = other[i];
    RIDGELINE_RETURN_IF_ERROR(ExpectNear(absl::StrCat("the sum in column ", i), sum[i], a + b,
                                         FusedTolerance(shape, Mode::kFused, {a + b, std::abs(a) + std::abs(b)})));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::int64_t> CheckedRows(std::int64_t num_rows) {
  constexpr std::int64_t kCheckedRows = 8;
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < kCheckedRows; ++i) {
    const std::int64_t row = (num_rows - 1) * i / (kCheckedRows - 1);
    if (rows.empty() || row > rows.back()) rows.push_back(row);
  }
  return rows;
}

absl::Status CheckFusedRow(const FusedShape& shape, Mode mode, const FusedRowInputs& inputs, const Floats& got) {
  const std::vector<FusedElement> want = FusedRow(shape, inputs);
  for (std::size_t i = 0; i < want.size(); ++i) {
    RIDGELINE_RETURN_IF_ERROR(ExpectNear(absl::StrCat("row ", inputs.row_idx, ", column ", i), got[i], want[i].value,
                                         FusedTolerance(shape, mode, want[i])));
  }
  return absl::OkStatus();
}

absl::Status CheckFused(const FusedShape& shape, Mode mode, const FusedTensors& tensors) {
  const Floats weight = tensors.weight.Row(0), bias = tensors.bias.Row(0);
  for (const std::int64_t row : CheckedRows(shape.num_rows)) {
    const Floats x = tensors.input.Row(row), o = tensors.other.Row(row), sum = tensors.residual_output.Row(row);
    RIDGELINE_RETURN_IF_ERROR(CheckSum(shape, x, o, sum));
    const FusedRowInputs inputs{.input = sum.empty() ? x.data() : sum.data(),
                                .other = sum.empty() ? DataOrNull(o) : nullptr,
                                .weight = DataOrNull(weight),
                                .bias = DataOrNull(bias),
                                .row_idx = row};
    RIDGELINE_RETURN_IF_ERROR(CheckFusedRow(shape, mode, inputs, tensors.output.Row(row)));
  }
  return absl::OkStatus();
}

}  // namespace ridgeline::engine::benchmark
