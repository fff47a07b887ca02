#include "tests/support/fused_tolerance.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/common/data_type.h"
#include "kernels/fused/fused.h"
#include "tests/reference/attention_reference.h"
#include "tests/reference/fused_reference.h"

namespace ridgeline::support {
namespace {

using kernels::DataType;
using kernels::fused::FusedParams;
using kernels::fused::FusedShape;
using kernels::fused::GeluForm;
using kernels::fused::Mode;
using kernels::fused::Op;
using kernels::fused::RopeLayout;
using reference::FusedResult;
using reference::Load;

using Row = std::vector<double>;

constexpr double kFloat32Roundoff = 0x1p-24;
constexpr double kFloat32Tiny = 0x1p-126;
constexpr double kSumDepth = 300;

double UnitRoundoff(DataType type) {
  return type == DataType::kFloat16 ? 0x1p-11 : type == DataType::kBFloat16 ? 0x1p-8 : kFloat32Roundoff;
}

// What rounding costs below the normal range; see attention_tolerance.cc.
double UnderflowError(DataType type) { return type == DataType::kFloat16 ? 0x1p-25 : kFloat32Tiny; }

class RowBound {
 public:
  RowBound(const FusedParams& params, Mode mode, std::int64_t row_idx)
      : params_(params),
        shape_(params.shape),
        row_idx_(row_idx),
        type_roundoff_(UnitRoundoff(params.shape.data_type)),
        tiny_(UnderflowError(params.shape.data_type)),
        step_roundoff_(mode == Mode::kUnfused ? type_roundoff_ : 0) {}

  double Rounding(double want) const { return type_roundoff_ * (1 + 0x1p-8) * std::abs(want) + tiny_; }

  // Of each element, before the last rounding.
  Row Errors(const Row& sums) const {
    Row x(shape_.row_elems);
    for (std::int64_t i = 0; i < shape_.row_elems; ++i) x[i] = sums.empty() ? At(params_.input, i) : sums[i];
    switch (shape_.op) {
      case Op::kLayerNorm:
      case Op::kAddLayerNorm:
        return Norm(x, true, nullptr);
      case Op::kRmsNorm:
      case Op::kAddRmsNorm:
        return Norm(x, false, nullptr);
      case Op::kSoftmax:
        return Softmax(x);
      case Op::kLayerNormGeluDropout:
        return GeluDropout(x);
      case Op::kRope:
      case Op::kRopeAppend:
        return Turn(x);
      default:
        return Pointwise(x);
    }
  }

  // Turning adds two products of sines and cosines that are off by a few u.
  Row Turn(const Row& x) const {
    const kernels::fused::RopeOptions& rope = shape_.rope;
    const std::int64_t pairs = rope.rotary_dim / 2;
    Row error(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto element = static_cast<std::int64_t>(i) % rope.head_dim;
      if (element >= rope.rotary_dim) continue;
      const bool interleaved = rope.layout == RopeLayout::kInterleaved;
      const std::int64_t partner = interleaved ? (element ^ 1) - element : element < pairs ? pairs : -pairs;
      error[i] = (std::abs(x[i]) + std::abs(x[i + partner])) * (16 * kFloat32Roundoff + 3 * step_roundoff_) + 2 * tiny_;
    }
    return error;
  }

 private:
  double At(const void* tensor, std::int64_t i) const {
    return Load(shape_.data_type, tensor, row_idx_ * shape_.row_elems + i);
  }
  double Weight(std::size_t i) const {
    return shape_.has_weight ? Load(shape_.data_type, params_.weight, static_cast<std::int64_t>(i)) : 1;
  }

  // Also gives the norm's values, if wanted.
  Row Norm(const Row& x, bool subtracts_mean, Row* values) const {
    constexpr double u = kFloat32Roundoff;
    const auto n = static_cast<double>(x.size());
    double mean = 0, magnitude = 0, variance = 0;
    for (const double element : x) {
      mean += subtracts_mean ? element / n : 0;
      magnitude += std::abs(element) / n;
    }
    for (const double element : x) variance += (element - mean) * (element - mean) / n;
    const double mean_error = subtracts_mean ? kSumDepth * u * magnitude : 0;
    const double variance_error =
        (kSumDepth + 4) * u * variance + mean_error * mean_error + 4 * u * mean_error * std::sqrt(variance);
    const double share = std::min(variance_error / (variance + shape_.epsilon), 0.99);
    const double factor = 1 / std::sqrt(variance + shape_.epsilon);
    const double factor_error = 1 / std::sqrt(1 - share) - 1 + 4 * u;
    Row error(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double distance = x[i] - mean, weight = Weight(i);
      const double bias =
          shape_.has_bias && subtracts_mean ? Load(shape_.data_type, params_.bias, static_cast<std::int64_t>(i)) : 0;
      const double product = std::abs(weight * distance * factor);
      error[i] = std::abs(weight) * factor * (mean_error + 2 * u * std::abs(distance) + std::abs(distance) * factor_error) +
                 3 * u * (product + std::abs(bias));
      // The distance, its square's mean, the quotient, the product with the weight.
      if (step_roundoff_ > 0) error[i] += 5 * step_roundoff_ * product + tiny_ * (1 + factor) * (1 + std::abs(weight));
      if (values != nullptr) values->push_back(weight * distance * factor + bias);
    }
    return error;
  }

  Row Softmax(const Row& x) const {
    const double max = *std::max_element(x.begin(), x.end());
    double sum = 0, sum_error = 0;
    for (const double element : x) {
      const double term = std::exp(element - max);
      sum += term;
      sum_error += term * ExponentialError(max - element) + (step_roundoff_ > 0 ? tiny_ : kFloat32Tiny);
    }
    Row error(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double relative = ExponentialError(max - x[i]) + sum_error / sum + (kSumDepth + 8) * kFloat32Roundoff;
      error[i] = std::exp(x[i] - max) / sum * (relative + 2 * step_roundoff_) + (step_roundoff_ > 0 ? tiny_ : kFloat32Tiny);
    }
    return error;
  }

  double ExponentialError(double distance) const {
    distance = std::min(distance, 200.0);  // nothing is left of what is farther
    return (4 + 4 * distance) * kFloat32Roundoff + std::expm1(step_roundoff_ * distance) + step_roundoff_;
  }

  // Of gelu(x), given that x is off by `error`.
  double Gelu(double x, double error) const {
    const bool is_erf = shape_.gelu_form == GeluForm::kErf;
    const double magnitude = std::abs(x);
    const double exponent = is_erf ? x * x / 2 : 1.6 * magnitude + 0.072 * magnitude * magnitude * magnitude;
    double relative = (32 + 8 * std::min(exponent, 200.0)) * kFloat32Roundoff;
    // CUDA's polynomial for 16-bit types; see activations.cuh.
    if (is_erf && shape_.data_type != DataType::kFloat32) relative += magnitude <= 6 ? 1.2e-5 : std::min(1e-5 * x * x, 1e-2);
    const double value = std::abs(reference::Gelu(shape_.gelu_form, x));
    double total = 1.13 * error + relative * value + kFloat32Tiny * (1 + magnitude);
    if (step_roundoff_ > 0) total += 4.5 * step_roundoff_ * magnitude + 4 * tiny_ * (1 + magnitude);
    return total;
  }

  Row GeluDropout(const Row& x) const {
    Row values;
    Row error = Norm(x, true, &values);
    const double kept = 1 - static_cast<double>(std::lround(shape_.dropout.probability * 65536)) / 65536;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double rounded = step_roundoff_ * std::abs(values[i]);
      error[i] = kept > 0 ? Gelu(values[i], error[i] + rounded) / kept : 0;
      error[i] += kept > 0 ? 2 * kFloat32Roundoff * std::abs(values[i]) / kept : 0;
    }
    return error;
  }

  Row Pointwise(const Row& x) const {
    constexpr double u = kFloat32Roundoff;
    Row error(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto element = static_cast<std::int64_t>(i);
      if (shape_.op == Op::kSwiglu) {
        const double other = At(params_.other, element), magnitude = std::abs(x[i]);
        const double value = std::abs(x[i] / (1 + std::exp(-x[i])) * other);
        error[i] = value * ((16 + 4 * std::min(magnitude, 200.0)) * u + 2.5 * step_roundoff_) +
                   kFloat32Tiny * (1 + magnitude) * (1 + std::abs(other));
        if (step_roundoff_ > 0) error[i] += tiny_ * (1 + magnitude) * (1 + std::abs(other));
        continue;
      }
      double argument = x[i], argument_error = 0;
      if (shape_.op == Op::kBiasGelu) {
        argument += Load(shape_.data_type, params_.bias, element);
        argument_error = (u + step_roundoff_) * std::abs(argument);
      }
      error[i] = Gelu(argument, argument_error);
      if (shape_.op == Op::kGeluAdd) {
        error[i] += 2 * u * (std::abs(argument) + std::abs(At(params_.other, element)));
      }
    }
    return error;
  }

  const FusedParams& params_;
  const FusedShape& shape_;
  const std::int64_t row_idx_;
  const double type_roundoff_;
  const double tiny_;
  const double step_roundoff_;  // of intermediate results, beyond float32's
};

void Append(const RowBound& bound, const Row& errors, const double* want, std::vector<double>& bounds) {
  for (std::size_t i = 0; i < errors.size(); ++i) {
    bounds.push_back(std::isfinite(want[i]) && std::isfinite(errors[i]) ? errors[i] + bound.Rounding(want[i]) : 0);
  }
}

}  // namespace

FusedBound BoundErrors(const FusedParams& params, Mode mode, const FusedResult& want) {
  const FusedShape& shape = params.shape;
  FusedBound bounds;
  for (std::int64_t row_idx = 0; row_idx < shape.num_rows; ++row_idx) {
    const RowBound bound(params, mode, row_idx);
    const std::int64_t begin = row_idx * shape.row_elems;
    Row sums;
    if (!want.residual_output.empty()) {
      sums.assign(want.residual_output.begin() + begin, want.residual_output.begin() + begin + shape.row_elems);
      Append(bound, Row(sums.size()), sums.data(), bounds.residual_output);
    }
    if (shape.has_input) Append(bound, bound.Errors(sums), want.output.data() + begin, bounds.output);
    if (want.keys.empty()) continue;
    Row keys(shape.key_elems);
    const std::int64_t key_begin = row_idx * shape.key_elems;
    for (std::int64_t i = 0; i < shape.key_elems; ++i) keys[i] = Load(shape.data_type, params.append.key, key_begin + i);
    Append(bound, bound.Turn(keys), want.keys.data() + key_begin, bounds.keys);
  }
  return bounds;
}

}  // namespace ridgeline::support
