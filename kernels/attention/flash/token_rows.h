// Where the keys, or the values, of one sequence lie, for one KV head.
//
//   dense   token t at begin + t * stride                                       one run of all tokens
//   paged   token t in page block_table[t / page_tokens], at t % page_tokens    a run is what is left of a page
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/visible_range.h"

namespace ridgeline::kernels::attention {

// Rows of one head and of those behind it, [tokens, kv_heads, dim], in memory that the launch owns.
template <typename T>
class TokenRows {
 public:
  // Tokens that lie one stride apart.
  struct Run {
    const T* first;
    std::int64_t tokens;
  };

  static TokenRows Keys(const AttentionParams& params, const Sequence& sequence, std::int64_t kv_head) {
    return TokenRows(params, sequence, kv_head, params.key, params.shape.head_dim);
  }
  static TokenRows Values(const AttentionParams& params, const Sequence& sequence, std::int64_t kv_head) {
    return TokenRows(params, sequence, kv_head, params.value, params.shape.value_head_dim);
  }

  std::int64_t stride_elems() const { return stride_elems_; }  // of the tokens of a run

  // The longest run that begins at keys.begin and stays within `keys`, which is not empty.
  Run RunAt(KeyRange keys) const {
    if (block_table_ == nullptr) return {begin_ + keys.begin * stride_elems_, keys.size()};
    const std::int64_t page = block_table_[keys.begin / page_tokens_], in_page = keys.begin % page_tokens_;
    return {begin_ + (page * page_tokens_ + in_page) * stride_elems_, std::min(page_tokens_ - in_page, keys.size())};
  }

  const T* At(std::int64_t key) const { return RunAt({key, key + 1}).first; }

  // Calls function(run, tokens before it) for all runs of `keys`, in order.
  template <typename Function>
  void ForEachRun(KeyRange keys, const Function& function) const {
    for (std::int64_t key = keys.begin; key < keys.end;) {
      const Run run = RunAt({key, keys.end});
      function(run, key - keys.begin);
      key += run.tokens;
    }
  }

 private:
  TokenRows(const AttentionParams& params, const Sequence& sequence, std::int64_t kv_head, const void* tensor, std::int64_t dim)
      : block_table_(params.shape.IsPaged() ? params.block_table + sequence.key_begin : nullptr),
        page_tokens_(params.shape.page_tokens),
        stride_elems_(params.shape.kv_heads * dim),
        begin_(static_cast<const T*>(tensor) + kv_head * dim +
               (params.shape.IsPaged() ? 0 : sequence.key_begin * stride_elems_)) {}

  const std::int32_t* block_table_;  // the sequence's; null: dense
  std::int64_t page_tokens_;
  std::int64_t stride_elems_;
  const T* begin_;  // the head's row of the first token; paged: of page 0
};

}  // namespace ridgeline::kernels::attention
