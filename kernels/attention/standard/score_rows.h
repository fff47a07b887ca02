// The row-wise work of standard attention between and after its matrix products, with SIMD instructions.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/attention/visible_range.h"

namespace ridgeline::kernels::attention {

// One query's row of S and what turns it into logits; attention.h has the formulas.
struct ScoreRow {
  float* scores = nullptr;  // [num_keys], scale * q·k
  std::int64_t num_keys = 0;
  KeyRange visible = {0, 0};
  float logit_soft_cap = 0;     // 0 = none
  float alibi_slope = 0;        // 0 = none
  std::int64_t position = 0;    // VisibleRange::Position, for ALiBi
  const float* bias = nullptr;  // [num_keys] or null
  float sink_logit = -std::numeric_limits<float>::infinity();
};

// Probability of a key that takes no part: masked, or with a logit of -inf. It adds nothing to a product, and its sign tells it
// from a visible key whose probability underflowed to +0: a NaN in the value of the latter must be seen, of the former must
// not.
inline constexpr float kHiddenProbability = -0.0f;

// Replaces scores by probabilities and returns the row's log-sum-exp, the sink included.
float SoftmaxInPlace(const ScoreRow& row);

// Whether [rows, columns] with `row_stride_elems` holds neither infinity nor NaN.
bool AllFinite(const float* matrix, std::int64_t rows, std::int64_t columns, std::int64_t row_stride_elems);

// output[value_dim] = sum of probability * value row over keys that are not hidden.
void SumVisibleValues(const float* probabilities, std::int64_t num_keys, const float* values, std::int64_t value_stride_elems,
                      std::int64_t value_dim, float* output);

}  // namespace ridgeline::kernels::attention
