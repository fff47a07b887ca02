#include "tests/reference/attention_reference.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "kernels/common/float16.h"

namespace ridgeline::reference {
namespace {

using kernels::BFloat16;
using kernels::DataType;
using kernels::Float16;
using kernels::attention::AttentionParams;
using kernels::attention::AttentionShape;
using kernels::attention::Sequence;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double Dot(const AttentionParams& params, const Sequence& sequence, std::int64_t head_idx, std::int64_t query_idx,
           std::int64_t key_idx) {
  const AttentionShape& shape = params.shape;
  const std::int64_t kv_head_idx = head_idx / (shape.query_heads / shape.kv_heads);
  const std::int64_t query_token = sequence.query_begin + query_idx;
  const std::int64_t key_token = sequence.key_begin + key_idx;
  double sum = 0;
  for (std::int64_t d = 0; d < shape.head_dim; ++d) {
    sum += Load(shape.data_type, params.query, (query_token * shape.query_heads + head_idx) * shape.head_dim + d) *
           Load(shape.data_type, params.key, (key_token * shape.kv_heads + kv_head_idx) * shape.head_dim + d);
  }
  return sum;
}

double Bias(const AttentionParams& params, std::int64_t sequence_idx, std::int64_t head_idx, std::int64_t query_idx,
            std::int64_t key_idx) {
  if (params.bias == nullptr) return 0;
  return params.bias[sequence_idx * params.bias_sequence_stride_elems + head_idx * params.bias_head_stride_elems +
                     query_idx * params.bias_row_stride_elems + key_idx];
}

// One row's softmax, the sink included. The sum is relative to the largest logit: beside a huge one, the log-sum-exp in a
// double would not show it.
struct Softmax {
  double largest;  // logit; -inf where there is nothing to sum
  double sum = 0;  // of exp(logit - largest)

  double LogSumExp() const { return largest == -kInfinity ? -kInfinity : largest + std::log(sum); }
  double Weight(double logit) const { return std::exp(logit - largest) / sum; }
};

Softmax SumUp(const std::vector<VisibleKey>& keys, double sink_logit) {
  Softmax softmax{.largest = sink_logit};
  for (const VisibleKey& key : keys) {
    if (!(key.logit <= softmax.largest)) softmax.largest = key.logit;  // a NaN is taken too
  }
  if (softmax.largest == -kInfinity) return softmax;
  softmax.sum = std::exp(sink_logit - softmax.largest);
  for (const VisibleKey& key : keys) softmax.sum += std::exp(key.logit - softmax.largest);
  return softmax;
}

}  // namespace

double Load(DataType type, const void* data, std::int64_t idx) {
  switch (type) {
    case DataType::kFloat32:
      return static_cast<const float*>(data)[idx];
    case DataType::kFloat16:
      return kernels::ToFloat(static_cast<const Float16*>(data)[idx]);
    case DataType::kBFloat16:
      return kernels::ToFloat(static_cast<const BFloat16*>(data)[idx]);
    default:
      assert(false);
      return kNaN;
  }
}

void Store(DataType type, float value, void* data, std::int64_t idx) {
  switch (type) {
    case DataType::kFloat32:
      static_cast<float*>(data)[idx] = value;
      return;
    case DataType::kFloat16:
      static_cast<Float16*>(data)[idx] = kernels::ToFloat16(value);
      return;
    case DataType::kBFloat16:
      static_cast<BFloat16*>(data)[idx] = kernels::ToBFloat16(value);
      return;
    default:
      assert(false);
  }
}

std::int64_t OutputElements(const AttentionParams& params) {
  std::int64_t tokens = 0;
  for (std::int64_t s = 0; s < params.shape.num_sequences; ++s) {
    tokens = std::max(tokens, params.sequences[s].query_begin + params.sequences[s].query_tokens);
  }
  return tokens * params.shape.query_heads * params.shape.value_head_dim;
}

std::int64_t LogSumExpElements(const AttentionParams& params) {
  if (params.log_sum_exp == nullptr) return 0;
  std::int64_t elements = 0;
  for (std::int64_t s = 0; s < params.shape.num_sequences; ++s) {
    const Sequence& sequence = params.sequences[s];
    if (sequence.query_tokens == 0) continue;
    elements = std::max(
        elements, sequence.lse_begin + (params.shape.query_heads - 1) * params.lse_head_stride_elems + sequence.query_tokens);
  }
  return elements;
}

std::vector<VisibleKey> VisibleKeys(const AttentionParams& params, std::int64_t sequence_idx, std::int64_t head_idx,
                                    std::int64_t query_idx) {
  const Sequence& sequence = params.sequences[sequence_idx];
  const std::int64_t position = query_idx + sequence.key_tokens - sequence.query_tokens;
  std::vector<VisibleKey> keys;
  for (std::int64_t j = 0; j < sequence.key_tokens; ++j) {
    if (j < position - params.shape.window_left || j > position + params.shape.window_right) continue;
    const double bias = Bias(params, sequence_idx, head_idx, query_idx, j);
    if (bias == -kInfinity) continue;
    double logit = params.scale * Dot(params, sequence, head_idx, query_idx, j);
    if (params.logit_soft_cap > 0) logit = params.logit_soft_cap * std::tanh(logit / params.logit_soft_cap);
    if (params.alibi_slopes != nullptr) {
      const double distance = std::abs(static_cast<double>(position - j));
      logit -= params.alibi_slopes[head_idx] * distance;
    }
    keys.push_back({j, logit + bias});
  }
  return keys;
}

AttentionResult Attend(const AttentionParams& params) {
  const AttentionShape& shape = params.shape;
  AttentionResult result;
  result.output.assign(OutputElements(params), kNaN);
  result.log_sum_exp.assign(LogSumExpElements(params), kNaN);
  for (std::int64_t s = 0; s < shape.num_sequences; ++s) {
    const Sequence& sequence = params.sequences[s];
    for (std::int64_t h = 0; h < shape.query_heads; ++h) {
      const std::int64_t kv_head = h / (shape.query_heads / shape.kv_heads);
      for (std::int64_t i = 0; i < sequence.query_tokens; ++i) {
        const std::vector<VisibleKey> keys = VisibleKeys(params, s, h, i);
        const Softmax softmax = SumUp(keys, params.sink_logits != nullptr ? params.sink_logits[h] : -kInfinity);
        if (params.log_sum_exp != nullptr) {
          result.log_sum_exp[sequence.lse_begin + h * params.lse_head_stride_elems + i] = softmax.LogSumExp();
        }
        double* row = result.output.data() + ((sequence.query_begin + i) * shape.query_heads + h) * shape.value_head_dim;
        std::fill_n(row, shape.value_head_dim, 0.0);
        for (const VisibleKey& key : keys) {
          const double weight = softmax.Weight(key.logit);
          const std::int64_t value_row = ((sequence.key_begin + key.key_idx) * shape.kv_heads + kv_head) * shape.value_head_dim;
          for (std::int64_t d = 0; d < shape.value_head_dim; ++d) {
            row[d] += weight * Load(shape.data_type, params.value, value_row + d);
          }
        }
      }
    }
  }
  return result;
}

}  // namespace ridgeline::reference
