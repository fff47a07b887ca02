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
#include <type_traits>

#include "kernels/attention/flash/flash_arguments.h"
#include "kernels/attention/flash/logit_options.cuh"
#include "kernels/attention/flash/mma_epilogue.cuh"
#include "kernels/attention/flash/mma_key_blocks.cuh"
#include "kernels/attention/flash/mma_softmax.cuh"
#include "kernels/attention/flash/mma_traits.cuh"
#include "kernels/attention/flash/row_mask.cuh"
#include "kernels/attention/flash/tile_facts.cuh"
#include "kernels/common/cp_async.cuh"
#include "kernels/common/float16.cuh"
#include "kernels/common/ldmatrix.cuh"
#include "kernels/common/mma.cuh"

namespace ridgeline::kernels::attention {

template <typename Traits>
class MmaAttention {
  using T = typename Traits::T;
  using Shared = typename Traits::SharedStorage;
  using Scores = typename Traits::Scores;
  using Blocks = std::conditional_t<Traits::kGathersKeys, GatheredBlocks<Traits>, ContiguousBlocks<Traits>>;
  static constexpr int kRowMmas = Traits::kRowMmas;
  static constexpr int kTileKeys = Traits::kTileKeys;
  // As many as a fragment has: the other fragments and warps have none then.
  static constexpr int kFewRows = 16;

  // Weights rounded to T, or those and what rounding took away: products with it cost no time where rows are few, and of few
  // numbers rounded no mean is exact.
  enum class WeightParts { kOne = 1, kTwo = 2, kByRows };

 public:
  __device__ MmaAttention(const FlashArguments& arguments, Shared& shared)
      : arguments_(arguments),
        params_(arguments.params),
        shared_(shared),
        facts_(shared.facts),
        smem_query_(SharedAddress(shared.query)),
        smem_key_(SharedAddress(shared.key)),
        smem_value_(SharedAddress(shared.value)),
        softmax_(Traits::kHasLogitOptions ? kLog2E : params_.scale * kLog2E) {}

  __device__ void Run() {
    const TilePlace place = FindPlace(arguments_, kTileKeys);
    int block = place.num_blocks - 1;
    if (block < 0) {
      facts_.Remember(arguments_, place);
      __syncthreads();
      return Finish();
    }
    const int num_keys = min(static_cast<int>(place.sequence.key_tokens) - (place.block_begin + block) * kTileKeys, kTileKeys);
    CopyQuery(place);
    if constexpr (Traits::kGathersKeys) facts_.Remember(arguments_, place);
    Blocks blocks(arguments_, place, shared_);
    blocks.CopyKeys(smem_key_, block, num_keys);
    CpAsyncCommit();
    blocks.CopyValues(smem_value_, block, num_keys);
    CpAsyncCommit();
    if constexpr (!Traits::kGathersKeys) facts_.Remember(arguments_, place);
    // Small heads walk few rows in a loop of their own, large ones decide in each block: which is faster is the compiler's
    // doing (README.md has both).
    if (!Traits::kKeepsQuery) {
      Walk<WeightParts::kByRows>(place, blocks, block);
    } else if (place.num_rows > kFewRows) {
      Walk<WeightParts::kOne>(place, blocks, block);
    } else {
      Walk<WeightParts::kTwo>(place, blocks, block);
    }
    Finish();
  }

 private:
  static constexpr float kLog2E = 1.4426950408889634f;

  __device__ static int warp() { return Traits::warp(); }
  __device__ static int lane() { return Traits::lane(); }
  __device__ static int RowOf(int mma, int half) { return Traits::RowOf(mma, half); }

  // ---- Copies ----

  __device__ void CopyQuery(const TilePlace& place) const {
    const std::int64_t head_dim = params_.shape.head_dim;
    const T* const query = static_cast<const T*>(params_.query);
    const int columns = static_cast<int>(head_dim);
    if (arguments_.schedule.packed_heads == 1) {
      const std::int64_t row_stride = params_.shape.query_heads * head_dim;
      const T* const source = Traits::QueryTile::ThreadSource(query + TokenHead(arguments_, place, 0) * head_dim, row_stride);
      smem_query_.CopyFrom(source, Traits::QueryTile::kPassRows * row_stride, place.num_rows, columns);
    } else {
      smem_query_.CopyFrom(place.num_rows, columns,
                           [&](int row) { return query + TokenHead(arguments_, place, row) * head_dim; });
    }
  }

  // ---- One block of keys ----

  // From the last block to the first: under a causal mask the ones that need it come first.
  template <WeightParts kParts>
  __device__ __forceinline__ void Walk(const TilePlace& place, Blocks& blocks, int block) {
    for (int step = 0; block >= 0; --block, ++step) {
      if (Traits::kHasLogitOptions || kParts == WeightParts::kTwo || !place.unmasked.Has(block)) {
        Step<true, kParts>(blocks, block, step);
      } else {
        Step<false, kParts>(blocks, block, step);
      }
    }
  }

  template <bool kMasked, WeightParts kParts>
  __device__ __forceinline__ void Step(Blocks& blocks, int block, int step) {
    const bool is_first = step == 0;
    // The block's keys, and the queries at first, when the values are on their way as well.
    if (is_first) {
      CpAsyncWait<1>();
    } else {
      CpAsyncWait<0>();
    }
    __syncthreads();  // everybody's copies, and the facts; and nobody reads the values of the block before
    if (!is_first) {
      blocks.CopyValues(smem_value_, block, kTileKeys);
      CpAsyncCommit();
    }
    std::uint32_t next_token = 0;
    if constexpr (Traits::kGathersKeys) {
      if (block > 0) next_token = blocks.Find(block - 1);
    }
    if (Traits::kKeepsQuery && is_first) {
#pragma unroll
      for (int d = 0; d < Traits::kDimSteps; ++d) LoadQuery(query_[d], d);
    }
    const bool wanted = WarpSees<kMasked>(block);
    Scores scores = {};
    if (wanted) ComputeScores<kMasked>(scores, block);
    if constexpr (Traits::kGathersKeys) {
      if (block > 0) blocks.Keep(block - 1, next_token);
    }
    AwaitValues<kMasked>(blocks, block);
    if (!wanted) return;
    softmax_.Weigh(scores, step, output_);
    if (kParts == WeightParts::kTwo || (kParts == WeightParts::kByRows && facts_.place.num_rows <= kFewRows)) {
      AddWeightedValues<2>(scores);
    } else {
      AddWeightedValues<1>(scores);
    }
  }

  // Until the block's values have arrived and its keys are done with; then the next keys may come.
  template <bool kMasked>
  __device__ __forceinline__ void AwaitValues(Blocks& blocks, int block) {
    CpAsyncWait<0>();
    bool is_finite = true;
    if constexpr (kMasked) {
      // A weight of 0 hides nothing from a sum in which the value is Inf or NaN.
      is_finite = !__syncthreads_or(smem_value_.CopiedNonFinite());
    } else {
      __syncthreads();
    }
    if (block > 0) {
      blocks.CopyKeys(smem_key_, block - 1, kTileKeys);
      CpAsyncCommit();
    }
    if (kMasked && !is_finite) {
      AddNonFiniteValues(block);
      __syncthreads();
      smem_value_.ClearNonFinite();
      __syncthreads();
    }
  }

  __device__ RowMask MaskOf(int block) const {
    return RowMask(facts_.visible, facts_.place.query_begin, (facts_.place.block_begin + block) * kTileKeys, kTileKeys);
  }

  // False for a warp whose rows see nothing of the block, or that has no rows.
  template <bool kMasked>
  __device__ bool WarpSees(int block) const {
    const int first_row = warp() * Traits::kWarpRows;
    if (first_row >= facts_.place.num_rows) return false;
    if constexpr (!kMasked) return true;
    const RowMask mask = MaskOf(block);
    const int last_row = min(first_row + Traits::kWarpRows, facts_.place.num_rows) - 1;
    return mask.OfQuery(facts_.query[first_row]).begin < kTileKeys && mask.OfQuery(facts_.query[last_row]).end > 0;
  }

  // The queries of one step of the sum over head_dim.
  __device__ __forceinline__ void LoadQuery(std::uint32_t (&query)[kRowMmas][4], int step) const {
    const std::uint32_t address = smem_query_.ChunkAddress(warp() * Traits::kWarpRows + lane() % 16, lane() / 16);
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
      LdMatrixX4(query[i], Traits::QueryTile::AtStep(address, step) + i * 16 * Traits::QueryTile::kPitchBytes);
    }
  }

  // S = Q·Kᵀ, with options and mask.
  template <bool kMasked>
  __device__ __forceinline__ void ComputeScores(Scores& scores, int block) {
    const std::uint32_t key_address = smem_key_.ChunkAddress(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2);
#pragma unroll
    for (int step = 0; step < Traits::kDimSteps; ++step) {
      auto& query = query_[Traits::kKeepsQuery ? step : 0];
      if constexpr (!Traits::kKeepsQuery) LoadQuery(query, step);
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
    if constexpr (kMasked) FinishScores(scores, lane() % 4 * 2, block);
  }

  // Products -> logits, or -inf where hidden. `first_key` is the key of the lane's first column, counted from the block's.
  __device__ __forceinline__ void FinishScores(Scores& scores, int first_key, int block) const {
    const RowMask mask = MaskOf(block);
    const int block_key = (facts_.place.block_begin + block) * kTileKeys;
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = RowOf(i, half);
        const BlockRange range = mask.OfQuery(facts_.query[row]);
        const auto finish = [&](float product, int key, const auto& logits) {
          if constexpr (Traits::kHasLogitOptions) product = logits.Of(product, block_key + key);
          return range.Has(key) ? product : -INFINITY;
        };
        const LogitOptions::Row logits = LogitsOf(row);
#pragma unroll
        for (int n = 0; n < Traits::kKeyMmas; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            float& score = scores[i][n][2 * half + j];
            score = finish(score, first_key + n * 8 + j, logits);
          }
        }
      }
    }
  }

  __device__ LogitOptions::Row LogitsOf(int row) const {
    const int query = facts_.place.query_begin + facts_.query[row];
    return LogitOptions(params_, facts_.place.tile.sequence_idx)
        .OfRow(facts_.query_head[row], query, facts_.visible.Position(query),
               static_cast<int>(facts_.place.sequence.key_tokens));
  }

  // O += P·V. Two neighbouring fragments of S, rounded, are one of P. Two parts are of few rows only.
  template <int kParts>
  __device__ __forceinline__ void AddWeightedValues(const Scores& weights) {
    constexpr int kFragments = kParts == 1 ? kRowMmas : 1;
    const std::uint32_t value_address = smem_value_.ChunkAddress(lane() % 16, lane() / 16);
#pragma unroll
    for (int step = 0; step < Traits::kKeyMmas / 2; ++step) {
      std::uint32_t weight[kFragments][kParts][4];
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
        const auto& low = weights[i][2 * step];
        const auto& high = weights[i][2 * step + 1];
        PackParts(weight[i], 0, low[0], low[1]);
        PackParts(weight[i], 1, low[2], low[3]);
        PackParts(weight[i], 2, high[0], high[1]);
        PackParts(weight[i], 3, high[2], high[3]);
      }
#pragma unroll
      for (int d = 0; d < Traits::kOutputMmas; d += 2) {
        std::uint32_t value[4];
        LdMatrixX4Transposed(value, Traits::KeyTile::AtStep(value_address, d / 2) + step * 16 * Traits::KeyTile::kPitchBytes);
#pragma unroll
        for (int i = 0; i < kFragments; ++i) {
#pragma unroll
          for (int part = 0; part < kParts; ++part) {
            Mma16816<T>(output_[i][d], weight[i][part], value[0], value[1]);
            Mma16816<T>(output_[i][d + 1], weight[i][part], value[2], value[3]);
          }
        }
      }
    }
  }

  // Two weights as pairs of T that sum up to them, the largest first.
  template <int kParts>
  __device__ static void PackParts(std::uint32_t (&parts)[kParts][4], int register_idx, float first, float second) {
    parts[0][register_idx] = PackPair<T>(first, second);
    if constexpr (kParts > 1) {
      const float2 rounded = UnpackPair<T>(parts[0][register_idx]);
      parts[1][register_idx] = PackPair<T>(first - rounded.x, second - rounded.y);
    }
  }

  __device__ bool Sees(const RowMask& mask, int row, int block, int key) const {
    if (!mask.OfQuery(facts_.query[row]).Has(key)) return false;
    if constexpr (!Traits::kHasLogitOptions) return true;
    return !LogitsOf(row).Hides((facts_.place.block_begin + block) * kTileKeys + key);
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
            if (!Sees(mask, RowOf(i, half), block, key)) continue;
            output_[i][d][2 * half] += values.x;
            output_[i][d][2 * half + 1] += values.y;
          }
        }
      }
    }
  }

  // ---- The end ----

  __device__ __forceinline__ void Finish() {
    const MmaEpilogue<Traits> epilogue(arguments_, facts_, smem_query_);
    softmax_.SumOverLanes();
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float factor = epilogue.FinishRow(i, half, softmax_.maximum(i, half), softmax_.sum(i, half));
#pragma unroll
        for (int d = 0; d < Traits::kOutputMmas; ++d) {
          output_[i][d][2 * half] *= factor;
          output_[i][d][2 * half + 1] *= factor;
        }
      }
    }
    epilogue.Store(output_);
  }

  const FlashArguments& arguments_;
  const AttentionParams& params_;
  Shared& shared_;
  typename Traits::Facts& facts_;
  const typename Traits::QueryTile smem_query_;
  const typename Traits::KeyTile smem_key_;
  const typename Traits::KeyTile smem_value_;

  MmaSoftmax<Traits> softmax_;
  std::uint32_t query_[Traits::kKeepsQuery ? Traits::kDimSteps : 1][kRowMmas][4];
  typename Traits::Output output_ = {};
};

template <typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, Traits::kBlocksPerSm)
    MmaAttentionKernel(const __grid_constant__ FlashArguments arguments) {
  extern __shared__ char shared[];
  MmaAttention<Traits>(arguments, *reinterpret_cast<typename Traits::SharedStorage*>(shared)).Run();
}

}  // namespace ridgeline::kernels::attention
