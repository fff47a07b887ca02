#include "server/engine/benchmark/fused_row.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "kernels/common/data_type.h"
#include "kernels/fused/dropout.h"

namespace ridgeline::engine::benchmark {
namespace {

using kernels::DataType;
using kernels::fused::FusedShape;
using kernels::fused::GeluForm;
using kernels::fused::Mode;
using kernels::fused::Op;

using Row = std::vector<FusedElement>;

// Half a unit in the last place, as a share.
double Roundoff(DataType type) {
  if (type == DataType::kFloat16) return 0x1p-11;
  return type == DataType::kBFloat16 ? 0x1p-8 : 0x1p-24;
}

double Gelu(GeluForm form, double x) {
  if (form == GeluForm::kErf) return x / 2 * std::erfc(-x / std::numbers::sqrt2);
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

Row Pointwise(const FusedShape& shape, const FusedRowInputs& in) {
  Row row(shape.row_elems);
  for (std::int64_t i = 0; i < shape.row_elems; ++i) {
    const double x = in.input[i];
    const double o = in.other != nullptr ? in.other[i] : in.bias != nullptr ? in.bias[i] : 0;
    switch (shape.op) {
      case Op::kBiasGelu:
        row[i] = {Gelu(shape.gelu_form, x + o), std::abs(x) + std::abs(o)};
        break;
      case Op::kGeluAdd:
        row[i] = {Gelu(shape.gelu_form, x) + o, std::abs(x) + std::abs(o)};
        break;
      case Op::kSwiglu:
        row[i] = {x / (1 + std::exp(-x)) * o, std::abs(x * o)};
        break;
      default:
        row[i] = {Gelu(shape.gelu_form, x), std::abs(x)};
    }
  }
  return row;
}

Row Norm(const FusedShape& shape, const FusedRowInputs& in, bool subtracts_mean) {
  const auto n = static_cast<double>(shape.row_elems);
  double mean = 0, squares = 0;
  if (subtracts_mean) {
    for (std::int64_t i = 0; i < shape.row_elems; ++i) mean += in.input[i] / n;
  }
  for (std::int64_t i = 0; i < shape.row_elems; ++i) squares += (in.input[i] - mean) * (in.input[i] - mean);
  const double factor = 1 / std::sqrt(squares / n + shape.epsilon);
  Row row(shape.row_elems);
  for (std::int64_t i = 0; i < shape.row_elems; ++i) {
    const double weight = in.weight != nullptr ? in.weight[i] : 1;
    const double bias = in.bias != nullptr && subtracts_mean ? in.bias[i] : 0;
    const double product = (in.input[i] - mean) * factor * weight;
    row[i] = {product + bias, (std::abs(in.input[i]) + std::abs(mean)) * factor * std::abs(weight) + std::abs(bias)};
  }
  return row;
}

Row Softmax(const FusedShape& shape, const FusedRowInputs& in) {
  const double maximum = *std::max_element(in.input, in.input + shape.row_elems);
  double sum = 0;
  for (std::int64_t i = 0; i < shape.row_elems; ++i) sum += std::exp(in.input[i] - maximum);
  Row row(shape.row_elems);
  for (std::int64_t i = 0; i < shape.row_elems; ++i) {
    const double distance = maximum - in.input[i];
    const double share = std::exp(-distance) / sum;
    row[i] = {share, share * (1 + distance)};  // what the exponent is off by, the exponential is off by as a share
  }
  return row;
}

Row NormGeluDropout(const FusedShape& shape, const FusedRowInputs& in) {
  const kernels::fused::DropoutRule rule = kernels::fused::RuleOf(shape.dropout);
  Row row = Norm(shape, in, /*subtracts_mean=*/true);
  for (std::int64_t i = 0; i < shape.row_elems; ++i) {
    const double scale = rule.KeepsElement(in.row_idx * shape.row_elems + i) ? rule.scale : 0;
    row[i] = {Gelu(shape.gelu_form, row[i].value) * scale, row[i].magnitude * scale};
  }
  return row;
}

// Half split: the head's element p and p + rotary_dim / 2 turn together.
Row Turn(const FusedShape& shape, const FusedRowInputs& in) {
  const std::int64_t pairs = shape.rope.rotary_dim / 2;
  Row row(shape.row_elems);
  for (std::int64_t head = 0; head < shape.row_elems; head += shape.rope.head_dim) {
    for (std::int64_t p = 0; p < pairs; ++p) {
      const double exponent = -2 * static_cast<double>(p) / static_cast<double>(shape.rope.rotary_dim);
      const double angle = static_cast<double>(in.row_idx) * std::pow(shape.rope.base, exponent);
      const double first = in.input[head + p], second = in.input[head + p + pairs];
      const double magnitude = std::abs(first) + std::abs(second);
      row[head + p] = {first * std::cos(angle) - second * std::sin(angle), magnitude};
      row[head + p + pairs] = {first * std::sin(angle) + second * std::cos(angle), magnitude};
    }
  }
  return row;
}

}  // namespace

std::vector<FusedElement> FusedRow(const FusedShape& shape, const FusedRowInputs& inputs) {
  switch (shape.op) {
    case Op::kLayerNorm:
    case Op::kAddLayerNorm:
      return Norm(shape, inputs, /*subtracts_mean=*/true);
    case Op::kRmsNorm:
    case Op::kAddRmsNorm:
      return Norm(shape, inputs, /*subtracts_mean=*/false);
    case Op::kSoftmax:
      return Softmax(shape, inputs);
    case Op::kLayerNormGeluDropout:
      return NormGeluDropout(shape, inputs);
    case Op::kRope:
    case Op::kRopeAppend:
      return Turn(shape, inputs);
    default:
      return Pointwise(shape, inputs);
  }
}

double FusedTolerance(const FusedShape& shape, Mode mode, const FusedElement& want) {
  constexpr double kInFloat32 = 512 * 0x1p-24;  // sums of a row's elements, exponentials and the like
  constexpr double kSteps = 8;                  // of a chain, whose results are rounded one by one
  constexpr double kTiny = 0x1p-24;             // below float16's normal range
  const double roundoff = Roundoff(shape.data_type);
  const double tiny = shape.data_type == DataType::kFloat16 ? kTiny : 1e-30;
  const double steps = mode == Mode::kUnfused ? kSteps * roundoff * want.magnitude : 0;
  return 1.01 * roundoff * std::abs(want.value) + steps + kInFloat32 * want.magnitude + tiny;
}

}  // namespace ridgeline::engine::benchmark
