// What windows, soft cap, ALiBi and bias do to the scores of a tile. Only kernels built with options have it.
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
  __device__ __forceinline__ void Apply(Scores& scores, int first_key) {
    const bool hides = Hides(first_key);
    bool some_hidden = false;
#pragma unroll
    for (int n = 0; n < Traits::kRowMmas; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + Traits::lane() / 4 + i / 2 * 8;
        const float logit = logits_[n][i % 2].Of(scores[n][i], key);
        scores[n][i] = hides && !Sees(query_[n][i % 2], key) ? -INFINITY : logit;
        some_hidden |= scores[n][i] == -INFINITY;
      }
    }
    bias_hides_ = logits_[0][0].bias != nullptr && __any_sync(kAllLanes, some_hidden);
  }

  // Of the tile that Apply last saw, whether some rows see other keys than others. A bias may hide keys from each row, all
  // else only from each query: then rows of one query have one mask.
  __device__ bool NeedsMasks(int first_key) const { return bias_hides_ || (query_tokens_ > 1 && Hides(first_key)); }
  __device__ int num_masks() const { return bias_hides_ ? Traits::kRows : query_tokens_; }
  __device__ int MaskOf(int n, int j) const { return bias_hides_ ? 8 * n + 2 * (Traits::lane() % 4) + j : query_[n][j]; }

  struct Mask {
    int query;
    const float* bias;  // or null
  };
  // By all lanes together.
  __device__ __forceinline__ Mask MaskAt(int idx) const {
    if (!bias_hides_) return {.query = idx, .bias = nullptr};
    Mask mask = {};
#pragma unroll
    for (int n = 0; n < Traits::kRowMmas; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int lane = idx % 8 / 2;  // which has the row, if it is one of 8 * n + 2 * lane + j
        const auto bias = __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(logits_[n][j].bias), lane);
        const int query = __shfl_sync(kAllLanes, query_[n][j], lane);
        if (idx / 8 == n && idx % 2 == j) mask = {.query = query, .bias = reinterpret_cast<const float*>(bias)};
      }
    }
    return mask;
  }

  // For the values of keys `first` and the next, a pair of 16-bit elements: ones where the mask shows the key.
  __device__ std::uint32_t PairMask(const Mask& mask, int first) const {
    return (Shows(mask, first) ? 0xffffu : 0u) | (Shows(mask, first + 1) ? 0xffff0000u : 0u);
  }

 private:
  __device__ bool Sees(int query, int key) const {
    const BasicKeyRange<int> range = visible_.UnclippedOfQuery(query);
    return key >= range.begin && key < range.end && key < visible_.key_tokens();
  }
  __device__ bool Shows(const Mask& mask, int key) const {
    return Sees(mask.query, key) && (mask.bias == nullptr || mask.bias[key] != -INFINITY);
  }

  int query_tokens_;
  BasicVisibleRange<int> visible_;
  BasicKeyRange<int> seen_by_all_;
  int query_[Traits::kRowMmas][2];
  LogitOptions::Row logits_[Traits::kRowMmas][2];
  bool bias_hides_;  // some key of the tile that Apply last saw; or the window does, and there is a bias
};

}  // namespace ridgeline::kernels::attention
