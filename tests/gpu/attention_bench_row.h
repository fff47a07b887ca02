// One row of attention_gpu_bench's table: a problem by its sizes, type, mask and options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"

namespace ridgeline::gpu {

struct AttentionBenchRow {
  kernels::attention::Algorithm algorithm;
  kernels::DataType type;
  std::int64_t batch, query_tokens, key_tokens, query_heads, kv_heads, head_dim;
  bool causal;

  // Named, all but value_head_dim off at first.
  std::int64_t value_head_dim = 0;    // 0: head_dim
  std::int64_t page_tokens = 0;       // keys and values lie in shuffled pages
  std::int64_t window = 0;            // keys that a query sees, its own and those before it; with `causal`
  std::vector<std::int64_t> lengths;  // of ragged sequences, queries and keys alike, in place of the batch
  std::int64_t query_factor = 1;      // standard deviation of the queries
  std::int64_t drift = 0;             // logits fall by so much along a sequence
  std::int64_t key_sinks = 0;         // the first key's logit is so much above the others'
  std::int64_t layer = -1;            // of tests/data/smollm2, whose tensors every sequence then has
  std::int64_t soft_cap = 0;
  std::int64_t alibi = 0;        // 1: slopes
  std::int64_t bias = 0;         // 1: [1, 1, Sq, Sk]
  std::int64_t sink_logits = 0;  // 1: a sink of logit 0 for each head
  std::int64_t lse = 0;          // 1: log-sum-exps are written

  std::int64_t ValueHeadDim() const { return value_head_dim > 0 ? value_head_dim : head_dim; }
  // Sequences as they lie in packed arrays, entries of the block table in place of key tokens where there are pages.
  std::vector<kernels::attention::Sequence> Sequences() const;
  std::int64_t QueryTokens() const;  // of all sequences
  std::int64_t KeyTokens() const;    // likewise, whole pages
};

// From a line of words, as attention_gpu_bench.cc describes it. False if it is none.
bool ParseAttentionBenchRow(const std::string& line, AttentionBenchRow& row);

}  // namespace ridgeline::gpu
