// Which token a dense row belongs to, on CUDA devices.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/kv_cache/kv_cache.h"

namespace ridgeline::kernels::kv_cache {

// The span of the row; null if it belongs to none.
__device__ __forceinline__ const TokenSpan* FindSpan(const PagedRows& rows, std::int64_t row) {
  // The first span that ends after the row.
  std::int64_t begin = 0;
  for (std::int64_t end = rows.num_spans; begin < end;) {
    const std::int64_t middle = (begin + end) / 2;
    if (rows.spans[middle].row_begin + rows.spans[middle].num_tokens > row) {
      end = middle;
    } else {
      begin = middle + 1;
    }
  }
  return begin == rows.num_spans || rows.spans[begin].row_begin > row ? nullptr : &rows.spans[begin];
}

// The row of the pages that holds a row of the span.
__device__ __forceinline__ std::int64_t PagedRow(const PagedRows& rows, const TokenSpan& span, std::int64_t row) {
  const std::int64_t token = span.token_begin + (row - span.row_begin);
  const std::int64_t page = rows.block_table[span.table_begin + token / rows.pages.page_tokens];
  return page * rows.pages.page_tokens + token % rows.pages.page_tokens;
}

}  // namespace ridgeline::kernels::kv_cache
