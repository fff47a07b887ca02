// Operation and byte counts of attention by formula: what the algorithm must compute and move, not what a counter saw.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"

namespace ridgeline::kernels::attention {

struct Cost {
  std::int64_t flops;  // 2 * visible pairs * Hq * (D + Dv): multiply and add counted separately, softmax not counted
  std::int64_t bytes;  // through device memory, see CountCost
};

// Number of (query, key) pairs of one sequence that the mask leaves visible, for one head. Closed form, O(1).
std::int64_t CountVisiblePairs(const AttentionShape& shape, std::int64_t query_tokens, std::int64_t key_tokens);

struct OptionalTensors {
  bool log_sum_exp = false;
  std::int64_t bias_bytes = 0;  // of the whole bias tensor; 0 = none
};

// Both algorithms read query, key, value (valid lengths) and bias once and write output and log_sum_exp once. Standard
// attention also writes and reads S, in float32, and then P, in the inputs' type, for all query-key pairs of every query head,
// masked or not.
// `sequences` is host memory. Saturates at INT64_MAX.
Cost CountCost(const AttentionShape& shape, const Sequence* sequences, const OptionalTensors& optional, Algorithm algorithm);

}  // namespace ridgeline::kernels::attention
