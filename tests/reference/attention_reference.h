// What attention should have computed: the formulas of kernels/attention/attention.h as plain loops in double, over inputs
// already rounded to the tested type. Never optimised. It shares no code with the kernels but the structs and the scalar
// conversions, and has a visibility rule of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"

namespace ridgeline::reference {

// In the layout of the kernels' output and log_sum_exp. Elements that belong to no sequence are NaN.
struct AttentionResult {
  std::vector<double> output;       // [query tokens, Hq, Dv]
  std::vector<double> log_sum_exp;  // of element (s, h, i): s.lse_begin + h * lse_head_stride_elems + i; empty if not asked for
};

// A key that one query sees, and its logit.
struct VisibleKey {
  std::int64_t key_idx;  // in its sequence
  double logit;          // after soft cap, ALiBi and bias
};

// params.output and params.workspace are not touched; log_sum_exp is asked for by a pointer that is not null.
AttentionResult Attend(const kernels::attention::AttentionParams& params);

// The keys that one row sees, in order. A key whose bias is -inf is not seen.
std::vector<VisibleKey> VisibleKeys(const kernels::attention::AttentionParams& params, std::int64_t sequence_idx,
                                    std::int64_t head_idx, std::int64_t query_idx);

// Element `idx` of an array of `type` (float32, float16, bfloat16), exactly.
double Load(kernels::DataType type, const void* data, std::int64_t idx);

// `value` rounded to `type` (float32, float16, bfloat16) and stored as element `idx`.
void Store(kernels::DataType type, float value, void* data, std::int64_t idx);

// Elements that the arrays must have to hold every sequence.
std::int64_t OutputElements(const kernels::attention::AttentionParams& params);
std::int64_t LogSumExpElements(const kernels::attention::AttentionParams& params);

}  // namespace ridgeline::reference
