// The way out for outputs that came out as NaN or Inf: computes a row again, key by key, looking only at what the row sees.
//
// A weight of 0 hides nothing from a product in which the hidden value is Inf or NaN, and a weight above 1 can overflow what
// the finished output would not. Both are so rare that the fast path only notices them, at a tile's end.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention/flash/logit_options.cuh"
#include "kernels/attention/flash/running_softmax.cuh"
#include "kernels/attention/prefill_sm90/prefill_arguments.h"
#include "kernels/attention/prefill_sm90/prefill_logits.cuh"
#include "kernels/attention/prefill_sm90/prefill_mask.cuh"
#include "kernels/attention/prefill_sm90/prefill_traits.cuh"
#include "kernels/common/float16.cuh"

namespace ridgeline::kernels::attention {

template <typename Traits>
class RowRepair {
  using T = typename Traits::T;
  static constexpr unsigned kAllLanes = 0xffffffff;
  static constexpr int kPairs =
      (Traits::kValueHeadDim + 63) / 64;  // of columns that a lane has: 2 * lane + 64 * i and the next

 public:
  __device__ RowRepair(const PrefillArguments& arguments, const PrefillTile& tile)
      : arguments_(arguments), params_(arguments.params), tile_(tile) {}

  // By a whole warp. `maximum` is the row's reference, `factor` what its weights are to be multiplied with. Hands the output to
  // store(column, pair), columns counted from the head's first.
  template <typename Store>
  __device__ __forceinline__ void Run(int row, float maximum, float log2_scale, float factor, const Store& store) const {
    const RowKeys keys = KeysOfRow(arguments_.schedule, tile_, row);
    const int key_begin = AlikeInWarp(keys.begin), key_end = AlikeInWarp(keys.end);
    float sum[kPairs][2] = {};
#pragma unroll 1
    for (int begin = key_begin; begin < key_end; begin += 32) {
      const int key = begin + LaneHere<Traits>();
      // Lanes that have no key follow the last one's, so that all go the same way.
      const float last_logit = Logit(row, min(key, key_end - 1));
      const float logit = key < key_end ? last_logit : -INFINITY;
      const float weight = Exp2((logit - maximum) * log2_scale) * factor;
      const bool is_hidden = logit == -INFINITY;
#pragma unroll 1
      for (int i = 0; i < 32; ++i) {
        const float weight_of_key = __shfl_sync(kAllLanes, weight, i);
        if (__shfl_sync(kAllLanes, is_hidden, i)) continue;
        AddValues(begin + i, weight_of_key, sum);
      }
    }
#pragma unroll
    for (int i = 0; i < kPairs; ++i) store(Column(i), sum[i][0], sum[i][1]);
  }

 private:
  __device__ static int Column(int pair) { return 2 * LaneHere<Traits>() + 64 * pair; }

  // Where the row of a key's KV head begins, in rows of key or value.
  __device__ std::int64_t RowOfKey(int key) const {
    std::int64_t token = tile_.key_begin + key;
    if (params_.block_table != nullptr) {
      const auto page_tokens = static_cast<int>(arguments_.schedule.page_tokens.divisor());
      token = std::int64_t{params_.block_table[tile_.key_begin + key / page_tokens]} * page_tokens + key % page_tokens;
    }
    return token * params_.shape.kv_heads + tile_.kv_head;
  }

  // The key's score as the fast path has it: the product, or the logit where there are options.
  __device__ __forceinline__ float Logit(int row, int key) const {
    const std::int64_t head_dim = params_.shape.head_dim;
    const T* const query = static_cast<const T*>(params_.query) +
                           ((tile_.query_token + std::int64_t{row}) * params_.shape.query_heads + tile_.query_head) * head_dim;
    const T* const key_row = static_cast<const T*>(params_.key) + RowOfKey(key) * head_dim;
    float product = 0;
#pragma unroll 1
    for (int d = 0; d < static_cast<int>(head_dim); d += 8) {
      const uint4 a = *reinterpret_cast<const uint4*>(query + d), b = *reinterpret_cast<const uint4*>(key_row + d);
      AddProducts(a.x, b.x, product);
      AddProducts(a.y, b.y, product);
      AddProducts(a.z, b.z, product);
      AddProducts(a.w, b.w, product);
    }
    if constexpr (!Traits::kHasLogitOptions) return product;
    const float logit = LogitOptions(params_, tile_.sequence_idx)
                            .OfRow(tile_.query_head, tile_.row_begin + row, tile_.position + row, tile_.key_tokens)
                            .Of(product, key);
    return logit / LogitUnit<Traits::kLogitOption>(arguments_);
  }

  __device__ static __forceinline__ void AddProducts(std::uint32_t a, std::uint32_t b, float& sum) {
    const float2 first = UnpackPair<T>(a), second = UnpackPair<T>(b);
    sum = fmaf(first.x, second.x, sum);
    sum = fmaf(first.y, second.y, sum);
  }

  __device__ __forceinline__ void AddValues(int key, float weight, float (&sum)[kPairs][2]) const {
    const std::int64_t columns = params_.shape.value_head_dim;
    const T* const value = static_cast<const T*>(params_.value) + RowOfKey(key) * columns;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (Column(i) >= static_cast<int>(columns)) continue;
      const float2 pair = UnpackPair<T>(*reinterpret_cast<const std::uint32_t*>(value + Column(i)));
      sum[i][0] = fmaf(weight, pair.x, sum[i][0]);
      sum[i][1] = fmaf(weight, pair.y, sum[i][1]);
    }
  }

  const PrefillArguments& arguments_;
  const AttentionParams& params_;
  const PrefillTile& tile_;
};

}  // namespace ridgeline::kernels::attention
