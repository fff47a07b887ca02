#include "server/engine/benchmark/attention_row.h"

#include <algorithm>
#include <cmath>

namespace ridgeline::engine::benchmark {

std::vector<double> AttentionRow(const CausalAttention& attention, std::int64_t token, std::int64_t head) {
  const std::int64_t dim = attention.head_dim;
  const std::int64_t kv_column = head / (attention.query_heads / attention.kv_heads) * dim;
  const std::vector<float> query = attention.query.Row(token);
  std::vector<double> weights;
  for (std::int64_t t = 0; t <= token; ++t) {
    const std::vector<float> key = attention.key.Row(t);
    double dot = 0;
    for (std::int64_t d = 0; d < dim; ++d) dot += static_cast<double>(query[head * dim + d]) * key[kv_column + d];
    weights.push_back(dot / std::sqrt(static_cast<double>(dim)));
  }
  const double maximum = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - maximum);
  std::vector<double> row(dim, 0.0);
  for (std::int64_t t = 0; t <= token; ++t) {
    const std::vector<float> value = attention.value.Row(t);
    for (std::int64_t d = 0; d < dim; ++d) row[d] += weights[t] / sum * value[kv_column + d];
  }
  return row;
}

}  // namespace ridgeline::engine::benchmark
