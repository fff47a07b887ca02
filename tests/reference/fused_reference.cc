#include "tests/reference/fused_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "kernels/common/data_type.h"
#include "kernels/fused/fused.h"
#include "tests/reference/attention_reference.h"

namespace ridgeline::reference {
namespace {

using kernels::DataType;
using kernels::fused::DropoutOptions;
using kernels::fused::FusedParams;
using kernels::fused::FusedShape;
using kernels::fused::GeluForm;
using kernels::fused::Op;
using kernels::fused::RopeLayout;
using kernels::fused::RopeOptions;

using Row = std::vector<double>;

double RoundTo(DataType type, double value) {
  float stored = 0;  // room for an element of any of the types
  Store(type, static_cast<float>(value), &stored, 0);
  return Load(type, &stored, 0);
}

Row LoadRow(DataType type, const void* tensor, std::int64_t row, std::int64_t elements) {
  Row values(elements);
  for (std::int64_t i = 0; i < elements; ++i) values[i] = Load(type, tensor, row * elements + i);
  return values;
}

double Mean(const Row& row) {
  double sum = 0;
  for (const double x : row) sum += x;
  return sum / static_cast<double>(row.size());
}

Row Normalize(const FusedParams& params, Row row, bool subtracts_mean, bool has_bias) {
  const FusedShape& shape = params.shape;
  const double mean = subtracts_mean ? Mean(row) : 0;
  double squares = 0;
  for (const double x : row) squares += (x - mean) * (x - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(row.size()) + shape.epsilon);
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = (row[i] - mean) / deviation;
    if (shape.has_weight) row[i] *= Load(shape.data_type, params.weight, static_cast<std::int64_t>(i));
    if (has_bias) row[i] += Load(shape.data_type, params.bias, static_cast<std::int64_t>(i));
  }
  return row;
}

Row Softmax(Row row) {
  double max = -std::numeric_limits<double>::infinity();
  for (const double x : row) max = std::max(max, x);
  double sum = 0;
  for (double& x : row) {
    x = std::exp(x - max);
    sum += x;
  }
  for (double& x : row) x /= sum;
  return row;
}

// One row of heads, by the angles of its position.
Row Turn(const RopeOptions& rope, std::int64_t position, Row row) {
  const std::int64_t pairs = rope.rotary_dim / 2;
  for (std::int64_t head = 0; head < static_cast<std::int64_t>(row.size()); head += rope.head_dim) {
    for (std::int64_t p = 0; p < pairs; ++p) {
      const double exponent = -2 * static_cast<double>(p) / static_cast<double>(rope.rotary_dim);
      const double angle = static_cast<double>(position) * std::pow(rope.base, exponent);
      const bool interleaved = rope.layout == RopeLayout::kInterleaved;
      double& first = row[head + (interleaved ? 2 * p : p)];
      double& second = row[head + (interleaved ? 2 * p + 1 : p + pairs)];
      const double turned = first * std::cos(angle) - second * std::sin(angle);
      second = first * std::sin(angle) + second * std::cos(angle);
      first = turned;
    }
  }
  return row;
}

Row FuseRow(const FusedParams& params, std::int64_t row_idx, FusedResult& result) {
  const FusedShape& shape = params.shape;
  const std::int64_t elements = shape.row_elems;
  Row row = LoadRow(shape.data_type, params.input, row_idx, elements);
  Row other(elements);
  if (params.other != nullptr) other = LoadRow(shape.data_type, params.other, row_idx, elements);
  switch (shape.op) {
    case Op::kLayerNorm:
      return Normalize(params, row, true, shape.has_bias);
    case Op::kRmsNorm:
      return Normalize(params, row, false, false);
    case Op::kSoftmax:
      return Softmax(row);
    case Op::kGelu:
      for (double& x : row) x = Gelu(shape.gelu_form, x);
      return row;
    case Op::kBiasGelu:
      for (std::int64_t i = 0; i < elements; ++i)
        row[i] = Gelu(shape.gelu_form, row[i] + Load(shape.data_type, params.bias, i));
      return row;
    case Op::kGeluAdd:
      for (std::int64_t i = 0; i < elements; ++i) row[i] = Gelu(shape.gelu_form, row[i]) + other[i];
      return row;
    case Op::kAddLayerNorm:
    case Op::kAddRmsNorm:
      for (std::int64_t i = 0; i < elements; ++i) row[i] = RoundTo(shape.data_type, row[i] + other[i]);
      result.residual_output.insert(result.residual_output.end(), row.begin(), row.end());
      return Normalize(params, row, shape.op == Op::kAddLayerNorm, shape.op == Op::kAddLayerNorm && shape.has_bias);
    case Op::kLayerNormGeluDropout: {
      // What is kept is divided by the share of 2^16 values that keep an element.
      const double kept_share = 1 - static_cast<double>(std::lround(shape.dropout.probability * 65536)) / 65536;
      row = Normalize(params, row, true, shape.has_bias);
      for (std::int64_t i = 0; i < elements; ++i) {
        const bool kept = IsKept(shape.dropout, row_idx * elements + i);
        result.mask.push_back(kept);
        row[i] = kept ? Gelu(shape.gelu_form, row[i]) / kept_share : 0;
      }
      return row;
    }
    case Op::kSwiglu:
      for (std::int64_t i = 0; i < elements; ++i) row[i] = row[i] / (1 + std::exp(-row[i])) * other[i];
      return row;
    case Op::kRope:
    case Op::kRopeAppend:
      return Turn(shape.rope, PositionOfRow(params, row_idx), row);
  }
  return row;
}

}  // namespace

FusedResult Fuse(const FusedParams& params) {
  const FusedShape& shape = params.shape;
  FusedResult result;
  for (std::int64_t row_idx = 0; row_idx < shape.num_rows; ++row_idx) {
    if (shape.has_input) {
      const Row row = FuseRow(params, row_idx, result);
      result.output.insert(result.output.end(), row.begin(), row.end());
    }
    if (shape.op == Op::kRopeAppend) {
      const Row keys = LoadRow(shape.data_type, params.append.key, row_idx, shape.key_elems);
      const Row turned = Turn(shape.rope, PositionOfRow(params, row_idx), keys);
      result.keys.insert(result.keys.end(), turned.begin(), turned.end());
    }
  }
  return result;
}

double Gelu(GeluForm form, double x) {
  if (form == GeluForm::kErf) return x / 2 * std::erfc(-x / std::numbers::sqrt2);
  // 1 + tanh(u) as 2 / (1 + exp(-2u)): the sum loses its digits where tanh(u) is near -1.
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * u));
}

std::int64_t PositionOfRow(const FusedParams& params, std::int64_t row) {
  if (params.shape.has_positions) return params.positions[row];
  if (params.shape.op != Op::kRopeAppend) return row;
  for (std::int64_t s = 0; s < params.append.to.num_spans; ++s) {
    const kernels::kv_cache::TokenSpan& span = params.append.to.spans[s];
    if (row >= span.row_begin && row < span.row_begin + span.num_tokens) return span.token_begin + row - span.row_begin;
  }
  return 0;
}

bool IsKept(const DropoutOptions& options, std::int64_t position) {
  const auto block = static_cast<std::uint64_t>(position) / 8;
  std::uint64_t c0 = block & 0xffffffff, c1 = block >> 32, c2 = options.offset & 0xffffffff, c3 = options.offset >> 32;
  std::uint64_t k0 = options.seed & 0xffffffff, k1 = options.seed >> 32;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53u * c0, p1 = 0xCD9E8D57u * c2;
    const std::uint64_t n0 = (p1 >> 32) ^ c1 ^ k0, n2 = (p0 >> 32) ^ c3 ^ k1;
    c0 = n0, c1 = p1 & 0xffffffff, c2 = n2, c3 = p0 & 0xffffffff;
    k0 = (k0 + 0x9E3779B9u) & 0xffffffff, k1 = (k1 + 0xBB67AE85u) & 0xffffffff;
  }
  const std::uint64_t words[4] = {c0, c1, c2, c3};
  const int element = static_cast<int>(position % 8);
  const std::uint64_t bits = (words[element / 2] >> (element % 2 * 16)) & 0xffff;
  return bits >= static_cast<std::uint64_t>(std::lround(options.probability * 65536));
}

}  // namespace ridgeline::reference
