// A problem as planners see it: a shape and a table of sequences, no tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"

namespace ridgeline::kernels::attention {

struct PlannedProblem {
  AttentionShape shape;
  std::vector<Sequence> sequences;

  // A sequence whose tokens follow those of the last one.
  void Add(std::int64_t query_tokens, std::int64_t key_tokens) {
    const Sequence last = sequences.empty() ? Sequence{} : sequences.back();
    sequences.push_back({.query_begin = last.query_begin + last.query_tokens,
                         .query_tokens = query_tokens,
                         .key_begin = last.key_begin + last.key_tokens,
                         .key_tokens = key_tokens,
                         .lse_begin = last.query_begin + last.query_tokens});
    shape.num_sequences = static_cast<std::int64_t>(sequences.size());
  }
};

// Without sequences. `Problem` derives from PlannedProblem.
template <typename Problem>
Problem ProblemOfHeads(std::int64_t query_heads, std::int64_t kv_heads, std::int64_t head_dim,
                       DataType type = DataType::kBFloat16) {
  Problem problem = {};
  problem.shape = {.data_type = type,
                   .output_data_type = type,
                   .num_sequences = 0,
                   .query_heads = query_heads,
                   .kv_heads = kv_heads,
                   .head_dim = head_dim,
                   .value_head_dim = head_dim};
  return problem;
}

// `batch` equal sequences.
template <typename Problem>
Problem DenseProblemOf(std::int64_t batch, std::int64_t query_tokens, std::int64_t key_tokens, std::int64_t query_heads,
                       std::int64_t kv_heads, std::int64_t head_dim, DataType type = DataType::kBFloat16) {
  Problem problem = ProblemOfHeads<Problem>(query_heads, kv_heads, head_dim, type);
  for (std::int64_t i = 0; i < batch; ++i) problem.Add(query_tokens, key_tokens);
  return problem;
}

}  // namespace ridgeline::kernels::attention
