// What a row of attention should be, as plain loops in double.
#pragma once

#include <cstdint>
#include <vector>

#include "server/engine/benchmark/host_tensor.h"

namespace ridgeline::engine::benchmark {

// One sequence whose queries and keys are the same tokens, causal: token i sees tokens 0 to i.
struct CausalAttention {
  const HostTensor& query;  // [tokens, query_heads * head_dim]
  const HostTensor& key;    // [tokens, kv_heads * head_dim]
  const HostTensor& value;  // [tokens, kv_heads * head_dim]
  std::int64_t query_heads, kv_heads, head_dim;
};

// Of one head: [head_dim].
std::vector<double> AttentionRow(const CausalAttention& attention, std::int64_t token, std::int64_t head);

}  // namespace ridgeline::engine::benchmark
