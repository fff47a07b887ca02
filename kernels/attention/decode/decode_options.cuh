// What windows, soft cap and ALiBi do to the scores of a tile. Only kernels built with options have it.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/flash/logit_options.cuh"
#include "kernels/attention/visible_range.h"

namespace ridgeline::kernels::attention {

// The rows of a KV head, as the fragments of scores spread them: a lane has rows 8 * mma + 2 * (lane % 4) and the next.
template <typename Traits>
class ScoreOptions {
 public:
  using Scores = float[Traits::kRowMmas][4];

  // `query_of_row(row)` and `head_of_row(row)` are a row's query and query head. Rows that do not exist have any.
  template <typename QueryOfRow, typename HeadOfRow>
  __device__ void Begin(const AttentionParams& params, int sequence_idx, int query_tokens, int key_tokens,
                        QueryOfRow query_of_row, HeadOfRow head_of_row) {
    query_tokens_ = query_tokens;
    visible_ = BasicVisibleRange<int>(params.shape, query_tokens, key_tokens);
    seen_by_all_ = visible_.OfEveryQuery(0, query_tokens);
#pragma unroll
    for (int n = 0; n < Traits::kRowMmas; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int row = 8 * n + 2 * (Traits::lane() % 4) + j;
        query_[n][j] = min(query_of_row(row), query_tokens - 1);
        logits_[n][j] = LogitOptions(params, sequence_idx)
                            .OfRow(head_of_row(row), query_[n][j], visible_.Position(query_[n][j]), key_tokens);
      }
    }
  }

  // Whether some row does not see some key of the tile.
  __device__ bool Hides(int first_key) const {
    return first_key < seen_by_all_.begin || first_key + Traits::kTileKeys > seen_by_all_.end;
  }

  // Products -> logits, -inf where hidden. The lane has keys lane / 4 and 8 more.
  __device__ __forceinline__ void Apply(Scores& scores, int first_key) const {
    const bool hides = Hides(first_key);
#pragma unroll
    for (int n = 0; n < Traits::kRowMmas; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + Traits::lane() / 4 + i / 2 * 8;
        const float logit = logits_[n][i % 2].Of(scores[n][i], key);
        scores[n][i] = hides && !Sees(query_[n][i % 2], key) ? -INFINITY : logit;
      }
    }
  }

  __device__ int query_tokens() const { return query_tokens_; }
  __device__ int QueryOf(int n, int j) const { return query_[n][j]; }

  // For the values of keys `first` and the next, a pair of 16-bit elements: ones where the query sees the key.
  __device__ std::uint32_t PairMask(int query, int first) const {
    return (Sees(query, first) ? 0xffffu : 0u) | (Sees(query, first + 1) ? 0xffff0000u : 0u);
  }

 private:
  __device__ bool Sees(int query, int key) const {
    const BasicKeyRange<int> range = visible_.UnclippedOfQuery(query);
    return key >= range.begin && key < range.end && key < visible_.key_tokens();
  }

  int query_tokens_;
  BasicVisibleRange<int> visible_;
  BasicKeyRange<int> seen_by_all_;
  int query_[Traits::kRowMmas][2];
  LogitOptions::Row logits_[Traits::kRowMmas][2];
};

}  // namespace ridgeline::kernels::attention
