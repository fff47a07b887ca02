// Flash attention in float32, on the CUDA cores: float32 means float32, so no tensor core takes part. One copy of keys and
// values is under way while the other is computed with, as in mma_kernel.cuh.
//
//   16 x 8 threads; thread (r, c) holds rows r + 16i, of S the keys c + 8j, of O the columns 4c + 32j and the three after
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention/flash/flash_arguments.h"
#include "kernels/attention/flash/float32_tile.cuh"
#include "kernels/attention/flash/logit_options.cuh"
#include "kernels/attention/flash/row_mask.cuh"
#include "kernels/attention/flash/running_softmax.cuh"
#include "kernels/attention/flash/store_rows.cuh"
#include "kernels/attention/flash/tile_facts.cuh"
#include "kernels/common/cp_async.cuh"

namespace ridgeline::kernels::attention {

template <int kHeadDim_, int kTileRows_, int kTileKeys_>
struct Float32Traits {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kTileRows = kTileRows_;
  static constexpr int kTileKeys = kTileKeys_;

  static constexpr int kRowThreads = 16;
  static constexpr int kColumnThreads = 8;
  static constexpr int kThreads = kRowThreads * kColumnThreads;
  static constexpr int kRows = kTileRows / kRowThreads;         // of a thread
  static constexpr int kKeys = kTileKeys / kColumnThreads;      // of a thread, in S
  static constexpr int kQuads = kHeadDim / 4 / kColumnThreads;  // of a thread, in O: groups of four columns

  struct SharedStorage {
    TileFacts<kTileRows> facts;
    Float32Tile<kTileRows, kHeadDim, kThreads> query;
    Float32Tile<kTileKeys, kHeadDim, kThreads> key;
    Float32Tile<kTileKeys, kHeadDim, kThreads> value;
    Float32Tile<kTileRows, kTileKeys, kThreads> weight;
  };
  static_assert(sizeof(SharedStorage) <= 99 << 10, "fits the smallest shared memory since Ampere");
};

template <typename Traits>
class Float32Attention {
  static constexpr int kTileKeys = Traits::kTileKeys;
  using Scores = float[Traits::kRows][Traits::kKeys];

 public:
  __device__ Float32Attention(const FlashArguments& arguments, typename Traits::SharedStorage& shared)
      : arguments_(arguments), params_(arguments.params), facts_(shared.facts), shared_(shared) {
#pragma unroll
    for (float& maximum : maximum_) maximum = -INFINITY;
  }

  __device__ void Run() {
    const TilePlace place = FindPlace(arguments_, kTileKeys);
    facts_.Remember(arguments_, place);
    __syncthreads();
    int block = place.num_blocks - 1;
    if (block >= 0) {
      const std::int64_t head_dim = params_.shape.head_dim;
      shared_.query.CopyFrom(place.num_rows, static_cast<int>(head_dim), [&](int row) {
        return static_cast<const float*>(params_.query) + facts_.token_head[row] * head_dim;
      });
      CopyKeys(shared_.key, params_.key, head_dim, block);
      CpAsyncCommit();
      for (; block >= 0; --block) Step(block);
    }
    Finish();
  }

 private:
  __device__ static int row_thread() { return static_cast<int>(threadIdx.x) / Traits::kColumnThreads; }
  __device__ static int column_thread() { return static_cast<int>(threadIdx.x) % Traits::kColumnThreads; }
  __device__ static int RowOf(int i) { return row_thread() + i * Traits::kRowThreads; }
  __device__ static int KeyOf(int j) { return column_thread() + j * Traits::kColumnThreads; }
  __device__ static int ColumnOf(int quad) { return (column_thread() + quad * Traits::kColumnThreads) * 4; }

  template <typename Tile>
  __device__ void CopyKeys(Tile& tile, const void* tensor, std::int64_t columns, int block) const {
    const int key_begin = (facts_.place.block_begin + block) * kTileKeys;
    const float* const source = static_cast<const float*>(tensor) + facts_.place.kv_head * columns;
    const std::int64_t token_stride = params_.shape.kv_heads * columns;
    const int num_keys = min(static_cast<int>(facts_.place.sequence.key_tokens) - key_begin, kTileKeys);
    tile.CopyFrom(num_keys, static_cast<int>(columns), [&](int row) {
      return source + KeyToken(arguments_, facts_.place.sequence, key_begin + row) * token_stride;
    });
  }

  __device__ void Step(int block) {
    CpAsyncWait<0>();  // the block's keys, and the queries at first
    __syncthreads();   // everybody's; and nobody reads the values or weights of the block before
    CopyKeys(shared_.value, params_.value, params_.shape.value_head_dim, block);
    CpAsyncCommit();

    Scores scores = {};
    ComputeScores(scores);
    const bool masked = !facts_.place.unmasked.Has(block) || params_.bias != nullptr;
    FinishScores(scores, block, masked);
    UpdateSoftmax(scores);

    CpAsyncWait<0>();  // the block's values
    const bool has_non_finite = masked && shared_.value.CopiedNonFinite();
    const bool is_finite = !__syncthreads_or(has_non_finite);
    if (block > 0) {
      CopyKeys(shared_.key, params_.key, params_.shape.head_dim, block - 1);
      CpAsyncCommit();
    }
    if (is_finite) {
      AddWeightedValues<false>();
    } else {
      AddWeightedValues<true>();
    }
  }

  // S = Q·Kᵀ.
  __device__ void ComputeScores(Scores& scores) const {
#pragma unroll 4
    for (int d = 0; d < Traits::kHeadDim; d += 4) {
      float4 key[Traits::kKeys];
#pragma unroll
      for (int j = 0; j < Traits::kKeys; ++j) key[j] = shared_.key.Load4(KeyOf(j), d);
#pragma unroll
      for (int i = 0; i < Traits::kRows; ++i) {
        const float4 query = shared_.query.Load4(RowOf(i), d);
#pragma unroll
        for (int j = 0; j < Traits::kKeys; ++j) {
          scores[i][j] = fmaf(query.x, key[j].x, scores[i][j]);
          scores[i][j] = fmaf(query.y, key[j].y, scores[i][j]);
          scores[i][j] = fmaf(query.z, key[j].z, scores[i][j]);
          scores[i][j] = fmaf(query.w, key[j].w, scores[i][j]);
        }
      }
    }
  }

  // Products -> logits, or -inf where hidden.
  __device__ void FinishScores(Scores& scores, int block, bool masked) const {
    const LogitOptions options(params_, facts_.place.tile.sequence_idx);
    const int key_begin = (facts_.place.block_begin + block) * kTileKeys;
    const RowMask mask(facts_.visible, facts_.place.query_begin, key_begin, kTileKeys);
#pragma unroll
    for (int i = 0; i < Traits::kRows; ++i) {
      const int row = RowOf(i);
      const int query = facts_.place.query_begin + facts_.query[row];
      const auto logits = options.OfRow(facts_.query_head[row], query, facts_.visible.Position(query),
                                        static_cast<int>(facts_.place.sequence.key_tokens));
      const BlockRange range = mask.OfQuery(facts_.query[row]);
#pragma unroll
      for (int j = 0; j < Traits::kKeys; ++j) {
        const bool hidden = masked && !range.Has(KeyOf(j));
        scores[i][j] = hidden ? -INFINITY : logits.Of(scores[i][j], key_begin + KeyOf(j));
      }
    }
  }

  // The maximum or the sum over the threads that share a row.
  template <typename Combine>
  __device__ static float OverRow(float x, Combine combine) {
#pragma unroll
    for (int distance = 1; distance < Traits::kColumnThreads; distance *= 2) {
      x = combine(x, __shfl_xor_sync(0xffffffff, x, distance));
    }
    return x;
  }

  // Leaves the weights in shared memory; -1 marks a hidden key, whose value must not count even if it is Inf or NaN.
  __device__ void UpdateSoftmax(const Scores& scores) {
#pragma unroll
    for (int i = 0; i < Traits::kRows; ++i) {
      float maximum = scores[i][0];
#pragma unroll
      for (int j = 1; j < Traits::kKeys; ++j) maximum = fmaxf(maximum, scores[i][j]);
      maximum = fmaxf(maximum_[i], OverRow(maximum, [](float a, float b) { return fmaxf(a, b); }));
      // Two -inf have no difference; nothing has been summed up then.
      const float factor = maximum == -INFINITY ? 1.0f : expf(maximum_[i] - maximum);
      const float reference = maximum == -INFINITY ? 0.0f : maximum;
      maximum_[i] = maximum;
      sum_[i] *= factor;
#pragma unroll
      for (int j = 0; j < Traits::kKeys; ++j) {
        const bool hidden = scores[i][j] == -INFINITY;
        const float weight = hidden ? 0.0f : expf(scores[i][j] - reference);
        sum_[i] += weight;
        shared_.weight.elements[RowOf(i)][KeyOf(j)] = hidden ? kHidden : weight;
      }
#pragma unroll
      for (int quad = 0; quad < Traits::kQuads; ++quad) {
        output_[i][quad].x *= factor;
        output_[i][quad].y *= factor;
        output_[i][quad].z *= factor;
        output_[i][quad].w *= factor;
      }
    }
  }

  // O += P·V. A hidden key's weight is -1 in shared memory: counted as 0, or where values may be Inf or NaN, not at all.
  template <bool kSkipHidden>
  __device__ void AddWeightedValues() {
#pragma unroll 1
    for (int key = 0; key < kTileKeys; key += 4) {
      float4 weight[Traits::kRows];
#pragma unroll
      for (int i = 0; i < Traits::kRows; ++i) weight[i] = shared_.weight.Load4(RowOf(i), key);
      AddKey<kSkipHidden>(key, [&](int i) { return weight[i].x; });
      AddKey<kSkipHidden>(key + 1, [&](int i) { return weight[i].y; });
      AddKey<kSkipHidden>(key + 2, [&](int i) { return weight[i].z; });
      AddKey<kSkipHidden>(key + 3, [&](int i) { return weight[i].w; });
    }
  }

  template <bool kSkipHidden, typename WeightOf>
  __device__ __forceinline__ void AddKey(int key, WeightOf weight_of) {
#pragma unroll
    for (int quad = 0; quad < Traits::kQuads; ++quad) {
      const float4 value = shared_.value.Load4(key, ColumnOf(quad));
#pragma unroll
      for (int i = 0; i < Traits::kRows; ++i) {
        if (kSkipHidden && weight_of(i) == kHidden) continue;
        const float weight = weight_of(i) == kHidden ? 0.0f : weight_of(i);
        output_[i][quad].x = fmaf(weight, value.x, output_[i][quad].x);
        output_[i][quad].y = fmaf(weight, value.y, output_[i][quad].y);
        output_[i][quad].z = fmaf(weight, value.z, output_[i][quad].z);
        output_[i][quad].w = fmaf(weight, value.w, output_[i][quad].w);
      }
    }
  }

  __device__ void Finish() {
#pragma unroll
    for (int i = 0; i < Traits::kRows; ++i) {
      const float factor = FinishRow(i);
#pragma unroll
      for (int quad = 0; quad < Traits::kQuads; ++quad) {
        output_[i][quad].x *= factor;
        output_[i][quad].y *= factor;
        output_[i][quad].z *= factor;
        output_[i][quad].w *= factor;
      }
    }
    if (arguments_.schedule.key_splits > 1) {
      Store(arguments_.partial_output + facts_.place.tile.split * arguments_.partial_rows * params_.shape.value_head_dim);
      return;
    }
    switch (params_.shape.output_data_type) {
      case DataType::kFloat16:
        return Store(static_cast<__half*>(params_.output));
      case DataType::kBFloat16:
        return Store(static_cast<__nv_bfloat16*>(params_.output));
      default:
        return Store(static_cast<float*>(params_.output));
    }
  }

  // Writes the row's log-sum-exp; returns what its output is to be multiplied with.
  __device__ float FinishRow(int i) {
    const float sum = OverRow(sum_[i], [](float a, float b) { return a + b; });
    const int row = RowOf(i);
    const bool is_partial = arguments_.schedule.key_splits > 1;
    const bool has_sink = params_.sink_logits != nullptr && !is_partial;
    const float sink_logit = has_sink ? params_.sink_logits[facts_.query_head[row]] : -INFINITY;
    const RowResult result = attention::FinishRow(maximum_[i], sum, 1.0f, sink_logit);
    if (row < facts_.place.num_rows && column_thread() == 0) {
      if (is_partial) {
        arguments_.partial_log_sum_exp[facts_.place.tile.split * arguments_.partial_rows + facts_.token_head[row]] =
            result.LogSumExp();
      } else if (params_.log_sum_exp != nullptr) {
        params_.log_sum_exp[facts_.lse_idx[row]] = result.LogSumExp();
      }
    }
    return result.output_factor;
  }

  template <typename Out>
  __device__ void Store(Out* output) {
    const std::int64_t columns = params_.shape.value_head_dim;
#pragma unroll
    for (int i = 0; i < Traits::kRows; ++i) {
      if (RowOf(i) >= facts_.place.num_rows) continue;
      Out* const row_output = output + facts_.token_head[RowOf(i)] * columns;
#pragma unroll
      for (int quad = 0; quad < Traits::kQuads; ++quad) {
        if (ColumnOf(quad) >= columns) continue;
        StorePair(row_output + ColumnOf(quad), output_[i][quad].x, output_[i][quad].y);
        StorePair(row_output + ColumnOf(quad) + 2, output_[i][quad].z, output_[i][quad].w);
      }
    }
  }

  static constexpr float kHidden = -1;

  const FlashArguments& arguments_;
  const AttentionParams& params_;
  TileFacts<Traits::kTileRows>& facts_;
  typename Traits::SharedStorage& shared_;

  float maximum_[Traits::kRows];
  float sum_[Traits::kRows] = {};
  float4 output_[Traits::kRows][Traits::kQuads] = {};
};

template <typename Traits>
__global__ void __launch_bounds__(Traits::kThreads) Float32AttentionKernel(const __grid_constant__ FlashArguments arguments) {
  extern __shared__ char shared[];
  Float32Attention<Traits>(arguments, *reinterpret_cast<typename Traits::SharedStorage*>(shared)).Run();
}

}  // namespace ridgeline::kernels::attention
