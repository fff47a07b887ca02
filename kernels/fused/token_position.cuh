// Which position a token has, on CUDA devices.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fused/rope_angle.h"
#include "kernels/kv_cache/find_token.cuh"
#include "kernels/kv_cache/kv_cache.h"

namespace ridgeline::kernels::fused {

struct AngleArguments {
  RopeRates rates;
  RopeLayout layout;
  int head_dim, rotary_dim;
  std::int64_t num_rows;
  kv_cache::PagedRows rows;       // num_spans 0: a row is its own position
  const std::int64_t* positions;  // [R] or null
};

// The position of a token; rows of no token have any.
__device__ __forceinline__ std::int64_t PositionOf(const AngleArguments& angles, std::int64_t row) {
  if (angles.positions != nullptr) return angles.positions[row];
  if (angles.rows.spans == nullptr) return row;
  const kv_cache::TokenSpan* const span = kv_cache::FindSpan(angles.rows, row);
  return span == nullptr ? 0 : span->token_begin + (row - span->row_begin);
}

}  // namespace ridgeline::kernels::fused
