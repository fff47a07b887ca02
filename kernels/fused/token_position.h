// Which position a token has, on the CPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/fused/fused.h"

namespace ridgeline::kernels::fused {

// The span of a dense row; null if it belongs to none.
inline const kv_cache::TokenSpan* FindSpanOnCpu(const kv_cache::PagedRows& rows, std::int64_t row) {
  const kv_cache::TokenSpan* const end = rows.spans + rows.num_spans;
  const auto ends_before = [](std::int64_t of, const kv_cache::TokenSpan& span) {
    return of < span.row_begin + span.num_tokens;
  };
  const kv_cache::TokenSpan* const span = std::upper_bound(rows.spans, end, row, ends_before);
  return span == end || span->row_begin > row ? nullptr : span;
}

// Rows of no token have position 0, unless positions say otherwise.
inline std::int64_t PositionOnCpu(const FusedParams& params, std::int64_t row) {
  if (params.shape.has_positions) return params.positions[row];
  if (params.shape.op != Op::kRopeAppend) return row;
  const kv_cache::TokenSpan* const span = FindSpanOnCpu(params.append.to, row);
  return span == nullptr ? 0 : span->token_begin + (row - span->row_begin);
}

}  // namespace ridgeline::kernels::fused
