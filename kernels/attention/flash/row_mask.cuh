// The mask of a tile against one block of keys, in small integers: positions are counted from the block's first key.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/visible_range.h"

namespace ridgeline::kernels::attention {

// Keys of a block that a query sees: [begin, end), counted from the block's first key; or blocks of a walk.
struct BlockRange {
  int begin;
  int end;

  __device__ bool Has(int idx) const { return idx >= begin && idx < end; }
};

class RowMask {
 public:
  __device__ RowMask(const BasicVisibleRange<int>& visible, int query_begin, int key_begin, int block_keys) {
    // The first query's range, unclipped; the others' are shifted by one key a query.
    const BasicKeyRange<int> first = visible.UnclippedOfQuery(query_begin);
    begin_ = first.begin - key_begin;
    end_ = first.end - key_begin;
    num_keys_ = min(visible.key_tokens() - key_begin, block_keys);
  }

  // `query` counts from query_begin.
  __device__ BlockRange OfQuery(int query) const { return {begin_ + query, min(end_ + query, num_keys_)}; }

 private:
  int begin_;
  int end_;
  int num_keys_;
};

}  // namespace ridgeline::kernels::attention
