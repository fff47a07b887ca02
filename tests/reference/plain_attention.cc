#include "tests/reference/plain_attention.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "tests/reference/attention_reference.h"

namespace ridgeline::reference {
namespace {

using kernels::attention::AttentionParams;
using kernels::attention::AttentionShape;
using kernels::attention::Sequence;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float LoadFloat(kernels::DataType type, const void* data, std::int64_t idx) {
  return static_cast<float>(Load(type, data, idx));
}

float RoundTo(kernels::DataType type, float value) {
  alignas(float) std::byte storage[sizeof(float)];
  Store(type, value, storage, 0);
  return LoadFloat(type, storage, 0);
}

// One row of S, masked; [Sk].
std::vector<float> Logits(const AttentionParams& params, std::int64_t s, std::int64_t h, std::int64_t i) {
  const AttentionShape& shape = params.shape;
  const Sequence& sequence = params.sequences[s];
  const std::int64_t position = i + sequence.key_tokens - sequence.query_tokens;
  const std::int64_t query_row = ((sequence.query_begin + i) * shape.query_heads + h) * shape.head_dim;
  std::vector<float> logits(sequence.key_tokens, -kInfinity);
  for (std::int64_t j = 0; j < sequence.key_tokens; ++j) {
    if (position - j > shape.window_left || j - position > shape.window_right) continue;
    const std::int64_t key_row = ((sequence.key_begin + j) * shape.kv_heads + h / shape.GroupHeads()) * shape.head_dim;
    float logit = 0;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      logit += LoadFloat(shape.data_type, params.query, query_row + d) * LoadFloat(shape.data_type, params.key, key_row + d);
    }
    logit *= params.scale;
    if (params.logit_soft_cap > 0) logit = params.logit_soft_cap * std::tanh(logit / params.logit_soft_cap);
    if (params.alibi_slopes != nullptr) logit -= params.alibi_slopes[h] * std::abs(static_cast<float>(position - j));
    if (params.bias != nullptr) {
      const float bias = params.bias[s * params.bias_sequence_stride_elems + h * params.bias_head_stride_elems +
                                     i * params.bias_row_stride_elems + j];
      logit = bias == -kInfinity ? -kInfinity : logit + bias;
    }
    logits[j] = logit;
  }
  return logits;
}

// Turns logits into probabilities and returns their log-sum-exp.
float Softmax(std::vector<float>& row, float sink_logit) {
  float largest = sink_logit;
  for (const float logit : row) largest = std::fmax(largest, logit);
  if (largest == -kInfinity) {
    for (float& p : row) p = 0;
    return -kInfinity;
  }
  float sum = std::exp(sink_logit - largest);
  for (float& p : row) sum += p = std::exp(p - largest);
  for (float& p : row) p /= sum;
  return largest + std::log(sum);
}

}  // namespace

PlainAttentionResult AttendPlainly(const AttentionParams& params) {
  const AttentionShape& shape = params.shape;
  PlainAttentionResult result;
  result.output.resize(OutputElements(params) * kernels::ElementBytes(shape.output_data_type));
  result.log_sum_exp.resize(LogSumExpElements(params));
  for (std::int64_t s = 0; s < shape.num_sequences; ++s) {
    const Sequence& sequence = params.sequences[s];
    for (std::int64_t h = 0; h < shape.query_heads; ++h) {
      for (std::int64_t i = 0; i < sequence.query_tokens; ++i) {
        std::vector<float> row = Logits(params, s, h, i);
        const float lse = Softmax(row, params.sink_logits != nullptr ? params.sink_logits[h] : -kInfinity);
        if (params.log_sum_exp != nullptr) {
          result.log_sum_exp[sequence.lse_begin + h * params.lse_head_stride_elems + i] = lse;
        }
        std::vector<float> sum(shape.value_head_dim);
        for (std::int64_t j = 0; j < sequence.key_tokens; ++j) {
          const float p = RoundTo(shape.data_type, row[j]);
          if (p == 0) continue;  // what a masked key's value holds must not matter
          const std::int64_t value_row =
              ((sequence.key_begin + j) * shape.kv_heads + h / shape.GroupHeads()) * shape.value_head_dim;
          for (std::int64_t d = 0; d < shape.value_head_dim; ++d) {
            sum[d] += p * LoadFloat(shape.data_type, params.value, value_row + d);
          }
        }
        const std::int64_t output_row = ((sequence.query_begin + i) * shape.query_heads + h) * shape.value_head_dim;
        for (std::int64_t d = 0; d < shape.value_head_dim; ++d) {
          Store(shape.output_data_type, sum[d], result.output.data(), output_row + d);
        }
      }
    }
  }
  return result;
}

}  // namespace ridgeline::reference
