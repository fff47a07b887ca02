// Flash attention with mma.sync and cp.async, for every chip since Ampere. README.md, "On CUDA devices", explains the schedule.
//
//   gmem Q ──cp.async──► smem query ──ldmatrix──► frag ─┐
//   gmem K ──cp.async──► smem key   ──ldmatrix──► frag ─┴─mma─► frag S ──mask, softmax──► frag P ─┐
//   gmem V ──cp.async──► smem value ──ldmatrix.trans──► frag ─────────────────────────────────────┴─mma─► frag O
//
//   values of a block travel while its scores are computed, the next keys while its softmax and P·V are
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention/flash/flash_arguments.h"
#include "kernels/attention/flash/logit_options.cuh"
#include "kernels/attention/flash/mma_traits.cuh"
#include "kernels/attention/flash/row_mask.cuh"
#include "kernels/attention/flash/running_softmax.cuh"
#include "kernels/attention/flash/store_rows.cuh"
#include "kernels/attention/flash/tile_facts.cuh"
#include "kernels/common/cp_async.cuh"
#include "kernels/common/float16.cuh"
#include "kernels/common/ldmatrix.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/common/shared_memory.cuh"

namespace ridgeline::kernels::attention {

template <typename Traits>
class MmaAttention {
  using T = typename Traits::T;
  using Shared = typename Traits::SharedStorage;
  static constexpr int kRowMmas = Traits::kRowMmas;
  static constexpr int kTileKeys = Traits::kTileKeys;

 public:
  __device__ MmaAttention(const FlashArguments& arguments, Shared& shared)
      : arguments_(arguments),
        params_(arguments.params),
        facts_(shared.facts),
        smem_query_(SharedAddress(shared.query)),
        smem_key_(SharedAddress(shared.key)),
        smem_value_(SharedAddress(shared.value)),
        log2_scale_(Traits::kHasLogitOptions ? kLog2E : params_.scale * kLog2E) {}

  __device__ void Run() {
    facts_.Find(arguments_, kTileKeys);
    int block = facts_.num_blocks - 1;
    if (block >= 0) {
      int num_keys = static_cast<int>(
          min(facts_.sequence.key_tokens - (facts_.block_begin + block) * kTileKeys, static_cast<std::int64_t>(kTileKeys)));
      const T* key = Source(params_.key, params_.shape.head_dim, block);
      const T* value = Source(params_.value, params_.shape.value_head_dim, block);
      CopyQuery();
      CopyKeys(smem_key_, key, params_.shape.head_dim, num_keys);
      CpAsyncCommit();
      // From the last block to the first: under a causal mask the ones that need it come first.
      for (; block >= 0; --block) {
        if (Traits::kHasLogitOptions || !facts_.unmasked.Has(block)) {
          Step<true>(block, num_keys, key, value);
        } else {
          Step<false>(block, num_keys, key, value);
        }
        num_keys = kTileKeys;
      }
    }
    Finish();
  }

 private:
  static constexpr float kLog2E = 1.4426950408889634f;

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // Of the two rows of fragment `mma` that this lane holds: half 0 or 1.
  __device__ static int RowOf(int mma, int half) { return warp() * Traits::kWarpRows + mma * 16 + half * 8 + lane() / 4; }

  // ---- Copies
  // -----------------------------------------------------------------------------------------------------------------

  __device__ void CopyQuery() const {
    const int head_dim = static_cast<int>(params_.shape.head_dim);
    smem_query_.CopyFrom(facts_.num_rows, head_dim,
                         [&](int row) { return static_cast<const T*>(params_.query) + facts_.token_head[row] * head_dim; });
  }

  // The first key of a block, in keys or values.
  __device__ const T* Source(const void* tensor, std::int64_t columns, int block) const {
    const std::int64_t token = facts_.sequence.key_begin + (facts_.block_begin + block) * kTileKeys;
    return static_cast<const T*>(tensor) + (token * params_.shape.kv_heads + facts_.kv_head) * columns;
  }

  // Copies a block and moves `source` to the one before.
  __device__ __forceinline__ void CopyKeys(const typename Traits::KeyTile& tile, const T*& source, std::int64_t columns,
                                           int num_keys) const {
    const std::int64_t row_stride = params_.shape.kv_heads * columns;
    tile.CopyFrom(source, row_stride, num_keys, static_cast<int>(columns));
    source -= row_stride * kTileKeys;
  }

  // ---- One block of keys
  // --------------------------------------------------------------------------------------------------------

  using Scores = float[kRowMmas][Traits::kKeyMmas][4];

  template <bool kMasked>
  __device__ __forceinline__ void Step(int block, int num_keys, const T*& next_key, const T*& value) {
    CpAsyncWait<0>();  // the block's keys, and the queries at first
    __syncthreads();   // everybody's; and nobody reads the values of the block before
    CopyKeys(smem_value_, value, params_.shape.value_head_dim, num_keys);
    CpAsyncCommit();

    const bool wanted = WarpSees<kMasked>(block);
    Scores scores = {};
    if (wanted) ComputeScores(scores);

    CpAsyncWait<0>();  // the block's values
    bool value_is_finite = true;
    if constexpr (kMasked) {
      // A weight of 0 hides nothing from a sum in which the value is Inf or NaN.
      value_is_finite = !__syncthreads_or(smem_value_.CopiedNonFinite());
    } else {
      __syncthreads();
    }
    if (block > 0) {
      CopyKeys(smem_key_, next_key, params_.shape.head_dim, kTileKeys);
      CpAsyncCommit();
    }
    if (kMasked && !value_is_finite) {
      AddNonFiniteValues(block);
      __syncthreads();
      smem_value_.ClearNonFinite();
      __syncthreads();
    }
    if (!wanted) return;
    if constexpr (Traits::kHasLogitOptions) ApplyLogitOptions(scores, block);
    if constexpr (kMasked) ApplyMask(scores, block);
    UpdateSoftmax(scores);
    AddWeightedValues(scores);
  }

  __device__ RowMask MaskOf(int block) const {
    return RowMask(facts_.visible, facts_.query_begin, (facts_.block_begin + block) * kTileKeys, kTileKeys);
  }

  // False for a warp whose rows see nothing of the block, or that has no rows.
  template <bool kMasked>
  __device__ bool WarpSees(int block) const {
    const int first_row = warp() * Traits::kWarpRows;
    if (first_row >= facts_.num_rows) return false;
    if constexpr (!kMasked) return true;
    const RowMask mask = MaskOf(block);
    const int last_row = min(first_row + Traits::kWarpRows, facts_.num_rows) - 1;
    return mask.OfQuery(facts_.query[first_row]).begin < kTileKeys && mask.OfQuery(facts_.query[last_row]).end > 0;
  }

  // S = Q·Kᵀ.
  __device__ __forceinline__ void ComputeScores(Scores& scores) const {
    const std::uint32_t query_address = smem_query_.ChunkAddress(warp() * Traits::kWarpRows + lane() % 16, lane() / 16);
    const std::uint32_t key_address = smem_key_.ChunkAddress(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2);
#pragma unroll
    for (int step = 0; step < Traits::kDimSteps; ++step) {
      std::uint32_t query[kRowMmas][4];
#pragma unroll
      for (int i = 0; i < kRowMmas; ++i) {
        LdMatrixX4(query[i], Traits::QueryTile::AtStep(query_address, step) + i * 16 * Traits::QueryTile::kPitchBytes);
      }
#pragma unroll
      for (int n = 0; n < Traits::kKeyMmas; n += 2) {
        std::uint32_t key[4];
        LdMatrixX4(key, Traits::KeyTile::AtStep(key_address, step) + n * 8 * Traits::KeyTile::kPitchBytes);
#pragma unroll
        for (int i = 0; i < kRowMmas; ++i) {
          Mma16816<T>(scores[i][n], query[i], key[0], key[1]);
          Mma16816<T>(scores[i][n + 1], query[i], key[2], key[3]);
        }
      }
    }
  }

  // Products -> logits.
  __device__ void ApplyLogitOptions(Scores& scores, int block) const {
    const LogitOptions options(params_, facts_.sequence_idx);
    const std::int64_t key_begin = (facts_.block_begin + block) * kTileKeys + lane() % 4 * 2;
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = RowOf(i, half);
        const std::int64_t query = facts_.query_begin + facts_.query[row];
        const auto logits =
            options.OfRow(facts_.query_head[row], query, facts_.visible.Position(query), facts_.sequence.key_tokens);
#pragma unroll
        for (int n = 0; n < Traits::kKeyMmas; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            float& score = scores[i][n][2 * half + j];
            score = logits.Of(score, key_begin + n * 8 + j);
          }
        }
      }
    }
  }

  __device__ void ApplyMask(Scores& scores, int block) const {
    const RowMask mask = MaskOf(block);
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const BlockRange range = mask.OfQuery(facts_.query[RowOf(i, half)]);
#pragma unroll
        for (int n = 0; n < Traits::kKeyMmas; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            if (!range.Has(n * 8 + lane() % 4 * 2 + j)) scores[i][n][2 * half + j] = -INFINITY;
          }
        }
      }
    }
  }

  // Scores -> weights, in place.
  __device__ __forceinline__ void UpdateSoftmax(Scores& scores) {
    float block_maximum[kRowMmas][2];
    bool outgrown = false;
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float maximum = fmaxf(scores[i][0][2 * half], scores[i][0][2 * half + 1]);
#pragma unroll
        for (int n = 1; n < Traits::kKeyMmas; ++n) {
          maximum = fmaxf(maximum, fmaxf(scores[i][n][2 * half], scores[i][n][2 * half + 1]));
        }
        block_maximum[i][half] = QuadMax(maximum);
        outgrown |= softmax_[i][half].Outgrown(block_maximum[i][half], log2_scale_);
      }
    }
    if (__any_sync(0xffffffff, outgrown)) Grow(block_maximum);
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float reference = softmax_[i][half].Log2Reference(log2_scale_);
#pragma unroll
        for (int n = 0; n < Traits::kKeyMmas; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            float& score = scores[i][n][2 * half + j];
            score = Exp2(fmaf(score, log2_scale_, -reference));
            softmax_[i][half].sum += score;
          }
        }
      }
    }
  }

  __device__ __forceinline__ void Grow(const float (&block_maximum)[kRowMmas][2]) {
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float factor = softmax_[i][half].Grow(block_maximum[i][half], log2_scale_);
#pragma unroll
        for (int d = 0; d < Traits::kOutputMmas; ++d) {
          output_[i][d][2 * half] *= factor;
          output_[i][d][2 * half + 1] *= factor;
        }
      }
    }
  }

  // O += P·V. Two neighbouring fragments of S, rounded, are one of P.
  __device__ __forceinline__ void AddWeightedValues(const Scores& weights) {
    const std::uint32_t value_address = smem_value_.ChunkAddress(lane() % 16, lane() / 16);
#pragma unroll
    for (int step = 0; step < Traits::kKeySteps; ++step) {
      std::uint32_t weight[kRowMmas][4];
#pragma unroll
      for (int i = 0; i < kRowMmas; ++i) {
        const auto& low = weights[i][2 * step];
        const auto& high = weights[i][2 * step + 1];
        weight[i][0] = PackPair<T>(low[0], low[1]);
        weight[i][1] = PackPair<T>(low[2], low[3]);
        weight[i][2] = PackPair<T>(high[0], high[1]);
        weight[i][3] = PackPair<T>(high[2], high[3]);
      }
#pragma unroll
      for (int d = 0; d < Traits::kOutputMmas; d += 2) {
        std::uint32_t value[4];
        LdMatrixX4Transposed(value, Traits::KeyTile::AtStep(value_address, d / 2) + step * 16 * Traits::KeyTile::kPitchBytes);
#pragma unroll
        for (int i = 0; i < kRowMmas; ++i) {
          Mma16816<T>(output_[i][d], weight[i], value[0], value[1]);
          Mma16816<T>(output_[i][d + 1], weight[i], value[2], value[3]);
        }
      }
    }
  }

  // Adds each Inf and NaN to the rows that see it: what the product would come to, but in no other row.
  __device__ __forceinline__ void AddNonFiniteValues(int block) {
    const RowMask mask = MaskOf(block);
#pragma unroll 1
    for (int key = 0; key < kTileKeys; ++key) {
#pragma unroll
      for (int d = 0; d < Traits::kOutputMmas; ++d) {
        const std::uint32_t pair = smem_value_.LoadPair(key, d * 8 + lane() % 4 * 2);
        const std::uint32_t non_finite = NonFiniteMask<T>(pair);
        if (non_finite == 0) continue;
        const float2 values = UnpackPair<T>(pair & non_finite);
#pragma unroll
        for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            if (!mask.OfQuery(facts_.query[RowOf(i, half)]).Has(key)) continue;
            output_[i][d][2 * half] += values.x;
            output_[i][d][2 * half + 1] += values.y;
          }
        }
      }
    }
  }

  // ---- The end
  // ------------------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void Finish() {
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float factor = FinishRow(i, half);
#pragma unroll
        for (int d = 0; d < Traits::kOutputMmas; ++d) {
          output_[i][d][2 * half] *= factor;
          output_[i][d][2 * half + 1] *= factor;
        }
      }
    }
    if (arguments_.schedule.key_splits > 1) {
      StorePairs(arguments_.partial_output + facts_.split * arguments_.partial_rows * params_.shape.value_head_dim);
    } else if (params_.shape.output_data_type == kDataTypeOf<T>) {
      StoreThroughShared();
    } else if (params_.shape.output_data_type == DataType::kFloat32) {
      StorePairs(static_cast<float*>(params_.output));
    } else {
      StorePairs(static_cast<OtherHalf<T>*>(params_.output));
    }
  }

  // Writes the row's log-sum-exp; returns what its output is to be multiplied with.
  __device__ float FinishRow(int mma, int half) {
    const RunningSoftmax& softmax = softmax_[mma][half];
    const float sum = QuadSum(softmax.sum);
    const int row = RowOf(mma, half);
    const float logit_scale = Traits::kHasLogitOptions ? 1.0f : params_.scale;
    const bool is_partial = arguments_.schedule.key_splits > 1;
    const bool has_sink = params_.sink_logits != nullptr && !is_partial && row < facts_.num_rows;
    const float sink_logit = has_sink ? params_.sink_logits[facts_.query_head[row]] : -INFINITY;
    const RowResult result = attention::FinishRow(softmax.maximum, sum, logit_scale, sink_logit);
    if (row < facts_.num_rows && lane() % 4 == 0) {
      if (is_partial) {
        arguments_.partial_log_sum_exp[facts_.split * arguments_.partial_rows + facts_.token_head[row]] = result.log_sum_exp;
      } else if (params_.log_sum_exp != nullptr) {
        params_.log_sum_exp[facts_.lse_idx[row]] = result.log_sum_exp;
      }
    }
    return result.output_factor;
  }

  // The output in the type of the inputs: a warp's rows go through what were its queries, so that rows are written in pieces of
  // 16 bytes.
  __device__ void StoreThroughShared() {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int d = 0; d < Traits::kOutputMmas; ++d) {
          StoreShared4(smem_query_.ChunkAddress(RowOf(i, half), d) + lane() % 4 * 4,
                       PackPair<T>(output_[i][d][2 * half], output_[i][d][2 * half + 1]));
        }
      }
    }
    __syncwarp();
    const int columns = static_cast<int>(params_.shape.value_head_dim);
    constexpr int kChunks = Traits::QueryTile::kChunks;
#pragma unroll 4
    for (int idx = lane(); idx < Traits::kWarpRows * kChunks; idx += 32) {
      const int row = warp() * Traits::kWarpRows + idx / kChunks, chunk = idx % kChunks;
      if (row >= facts_.num_rows || chunk * 8 >= columns) continue;
      StoreGlobal16(static_cast<T*>(params_.output) + facts_.token_head[row] * columns + chunk * 8,
                    LoadShared16(smem_query_.ChunkAddress(row, chunk)));
    }
  }

  // Straight from the fragments, converted to Out.
  template <typename Out>
  __device__ void StorePairs(Out* output) {
    const int columns = static_cast<int>(params_.shape.value_head_dim);
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = RowOf(i, half);
        if (row >= facts_.num_rows) continue;
        Out* const row_output = output + facts_.token_head[row] * columns;
#pragma unroll
        for (int d = 0; d < Traits::kOutputMmas; ++d) {
          const int column = d * 8 + lane() % 4 * 2;
          if (column < columns) StorePair(row_output + column, output_[i][d][2 * half], output_[i][d][2 * half + 1]);
        }
      }
    }
  }

  const FlashArguments& arguments_;
  const AttentionParams& params_;
  typename Traits::Facts& facts_;
  const typename Traits::QueryTile smem_query_;
  const typename Traits::KeyTile smem_key_;
  const typename Traits::KeyTile smem_value_;
  const float log2_scale_;

  RunningSoftmax softmax_[kRowMmas][2];
  float output_[kRowMmas][Traits::kOutputMmas][4] = {};
};

template <typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, Traits::kBlocksPerSm)
    MmaAttentionKernel(const __grid_constant__ FlashArguments arguments) {
  extern __shared__ char shared[];
  MmaAttention<Traits>(arguments, *reinterpret_cast<typename Traits::SharedStorage*>(shared)).Run();
}

}  // namespace ridgeline::kernels::attention
