// Standard attention in the tested type, written plainly: what a careful textbook implementation achieves. A kernel's error is
// measured against this one's.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/attention/attention.h"

namespace ridgeline::reference {

struct PlainAttentionResult {
  std::vector<std::byte> output;   // output_data_type, in the kernels' layout; elements that belong to no sequence are 0
  std::vector<float> log_sum_exp;  // likewise
};

// S, softmax and both sums in float32; P rounded to the input type before P·V, as a matrix unit takes it; output rounded once.
// params.output and params.workspace are not touched.
PlainAttentionResult AttendPlainly(const kernels::attention::AttentionParams& params);

}  // namespace ridgeline::reference
