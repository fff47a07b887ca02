// One warp's softmax over its tiles of one KV head: transposed, so that the few rows are the N side of mma.
//
//   Sᵀ[16 keys, rows] = K[16, D] · Qᵀ        K: ldmatrix        Q: registers
//   Oᵀ[D, rows]      += Vᵀ[D, 16] · Pᵀ       V: ldmatrix.trans  P: from accumulators to operands by movmatrix
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention/decode/decode_load.cuh"
#include "kernels/attention/decode/decode_options.cuh"
#include "kernels/attention/decode/decode_rows.cuh"
#include "kernels/attention/decode/decode_traits.cuh"
#include "kernels/common/float16.cuh"
#include "kernels/common/ldmatrix.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/common/movmatrix.cuh"

namespace ridgeline::kernels::attention {

// Takes the place of ScoreOptions where there are none.
struct NoScoreOptions {};

template <typename Traits>
class TileSoftmax {
  using T = typename Traits::T;
  using Layout = TileLayout<Traits::kHeadDim>;
  static constexpr int kRowMmas = Traits::kRowMmas;

 public:
  // Begins a unit: forgets everything and fetches its queries.
  __device__ __forceinline__ void Begin(const DecodeArguments& arguments, const Unit& unit, const PackedRows& rows) {
    const int lane = Traits::lane();
    int head_dim = static_cast<int>(arguments.params.shape.head_dim);
    KeepFromHoisting(head_dim);
    // K as it lies is operand A: matrices of keys 0-7, 8-15 at the first eight columns, then at the next eight. Vᵀ takes the
    // first eight columns of keys 0-7, their next eight columns, then keys 8-15.
    key_row_ = RowOffset(lane % 8 + lane / 8 % 2 * 8, lane / 16);
    value_row_ = RowOffset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    log2_scale_ = Log2Scale<Traits>(arguments.params);
    key_end_ = unit.keys.end;
#pragma unroll
    for (int n = 0; n < kRowMmas; ++n) {
      const int row = 8 * n + lane / 4;
      // In pairs of elements; a row that does not exist has none.
      query_row_[n] =
          static_cast<const unsigned*>(arguments.params.query) + (rows.TokenHead(row) * head_dim + lane % 4 * 2) / 2;
      query_chunks_[n] = row < rows.size() ? head_dim / 8 : 0;
      if constexpr (Traits::kKeepsQuery) {
#pragma unroll
        for (int i = 0; i < Traits::kDimSteps; ++i) FetchQuery(query_[i][n], n, i);
      }
      maximum_[n][0] = maximum_[n][1] = -INFINITY;
      sum_[n][0] = sum_[n][1] = 0;
#pragma unroll
      for (int i = 0; i < Traits::kDimSteps; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) output_[i][n][j] = 0;
      }
    }
    if constexpr (Traits::kHasOptions) {
      const Sequence& sequence = arguments.params.sequences[unit.sequence_idx];
      options_.Begin(
          arguments.params, unit.sequence_idx, static_cast<int>(sequence.query_tokens), static_cast<int>(sequence.key_tokens),
          [&](int row) { return rows.QueryOf(row); }, [&](int row) { return row < rows.size() ? rows.HeadOf(row) : 0; });
    }
  }

  // Adds a tile of keys, from `first_key` on, and values that have arrived in the slot at shared address `slot`.
  __device__ __forceinline__ void Add(std::uint32_t slot, int first_key) {
    Scores scores;
    ComputeScores(scores, slot);
    if constexpr (Traits::kHasOptions) options_.Apply(scores, first_key);
    HideKeysPastTheEnd(scores, first_key);
    RaiseMaxima(scores);
    std::uint32_t weights[kRowMmas][2];
    Weigh(scores, weights);
    AddWeightedValues(slot + Traits::kTileBytes, weights, first_key);
  }

  // Of all lanes together.
  __device__ __forceinline__ void ReduceSums() {
#pragma unroll
    for (int n = 0; n < kRowMmas; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2) sum_[n][j] += __shfl_xor_sync(kAllLanes, sum_[n][j], distance);
      }
    }
  }

  // For rows 8 * n + 2 * (lane % 4) + j; element i of the row's output is column 16 * i + lane / 4, of i + 1 that and 8 more.
  __device__ float maximum(int n, int j) const { return maximum_[n][j]; }
  __device__ float sum(int n, int j) const { return sum_[n][j]; }
  __device__ float output(int step, int n, int j, int half) const { return output_[step][n][2 * half + j]; }

 private:
  // Of keys lane / 4 and 8 more (elements 2 and 3), rows 8 * n + 2 * (lane % 4) and the next.
  using Scores = float[kRowMmas][4];

  static constexpr bool kXorSteps = (Traits::kRowBytes & (Traits::kRowBytes - 1)) == 0;

  __device__ static std::uint32_t RowOffset(int row, int chunk) {
    return static_cast<std::uint32_t>(Layout::ChunkOffset(row, chunk));
  }

  // The address of a row's chunk 2 * step further on.
  __device__ __forceinline__ static std::uint32_t AtStep(std::uint32_t tile, std::uint32_t row_offset, int step) {
    if constexpr (kXorSteps) return (tile + row_offset) ^ static_cast<std::uint32_t>(step * 32);
    // Within the swizzle chunks change places, groups of kSwizzle chunks do not.
    constexpr int kInside = Layout::kSwizzle * 16 - 1;
    return tile + (row_offset ^ static_cast<std::uint32_t>(step * 32 & kInside)) +
           static_cast<std::uint32_t>(step * 32 & ~kInside);
  }

  // The lane's part of rows 8 * n to 8 * n + 7 for one step.
  __device__ __forceinline__ void FetchQuery(std::uint32_t (&query)[2], int n, int step) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int chunk = 2 * step + half;
      query[half] = chunk < query_chunks_[n] ? __ldg(query_row_[n] + 4 * chunk) : 0u;
    }
  }

  __device__ __forceinline__ void ComputeScores(Scores& scores, std::uint32_t keys) {
    // Two sums of every other step: a chain of products waits for each.
    float sums[2][kRowMmas][4] = {};
#pragma unroll
    for (int i = 0; i < Traits::kDimSteps; ++i) {
      std::uint32_t key[4];
      LdMatrixX4(key, AtStep(keys, key_row_, i));
#pragma unroll
      for (int n = 0; n < kRowMmas; ++n) {
        auto& query = query_[Traits::kKeepsQuery ? i : 0][n];
        if constexpr (!Traits::kKeepsQuery) FetchQuery(query, n, i);
        Mma16816<T>(sums[i % 2][n], key, query[0], query[1]);
      }
    }
#pragma unroll
    for (int n = 0; n < kRowMmas; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) scores[n][j] = sums[0][n][j] + sums[1][n][j];
    }
  }

  __device__ __forceinline__ void HideKeysPastTheEnd(Scores& scores, int first_key) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (first_key + Traits::lane() / 4 + 8 * half < key_end_) continue;
#pragma unroll
      for (int n = 0; n < kRowMmas; ++n) scores[n][2 * half] = scores[n][2 * half + 1] = -INFINITY;
    }
  }

  // Maxima rarely move; then the output follows.
  __device__ __forceinline__ void RaiseMaxima(const Scores& scores) {
    float larger[kRowMmas][2];
    bool moves = false;
#pragma unroll
    for (int n = 0; n < kRowMmas; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        larger[n][j] = fmaxf(scores[n][j], scores[n][j + 2]);
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2) {
          larger[n][j] = fmaxf(larger[n][j], __shfl_xor_sync(kAllLanes, larger[n][j], distance));
        }
        moves |= larger[n][j] > maximum_[n][j];
      }
    }
    if (!__any_sync(kAllLanes, moves)) return;
#pragma unroll
    for (int n = 0; n < kRowMmas; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float before = maximum_[n][j];
        maximum_[n][j] = fmaxf(before, larger[n][j]);
        const float factor = before == maximum_[n][j] ? 1.0f : Exp2((before - maximum_[n][j]) * log2_scale_);
        sum_[n][j] *= factor;
#pragma unroll
        for (int i = 0; i < Traits::kDimSteps; ++i) {
          output_[i][n][j] *= factor;
          output_[i][n][j + 2] *= factor;
        }
      }
    }
  }

  // Distances before the scale: large logits cost nothing of their differences.
  __device__ __forceinline__ void Weigh(const Scores& scores, std::uint32_t (&weights)[kRowMmas][2]) {
#pragma unroll
    for (int n = 0; n < kRowMmas; ++n) {
      float weight[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weight[i] = Exp2((scores[n][i] - ReferenceOf(maximum_[n][i % 2])) * log2_scale_);
        sum_[n][i % 2] += weight[i];
      }
      weights[n][0] = MovMatrixTransposed(PackPair<T>(weight[0], weight[1]));
      weights[n][1] = MovMatrixTransposed(PackPair<T>(weight[2], weight[3]));
    }
  }

  __device__ __forceinline__ void AddWeightedValues(std::uint32_t values, const std::uint32_t (&weights)[kRowMmas][2],
                                                    int first_key) {
    if constexpr (Traits::kHasOptions) {
      if (options_.NeedsMasks(first_key)) return AddMaskByMask(values, weights, first_key);
    }
#pragma unroll
    for (int i = 0; i < Traits::kDimSteps; ++i) {
      std::uint32_t value[4];
      LdMatrixX4Transposed(value, AtStep(values, value_row_, i));
#pragma unroll
      for (int n = 0; n < kRowMmas; ++n) Mma16816<T>(output_[i][n], value, weights[n][0], weights[n][1]);
    }
  }

  // Where rows see different keys: a weight of 0 hides nothing from a sum in which the value is Inf or NaN, so rows of each
  // mask get their own product, of which the values that they do not see are no part.
  __device__ __forceinline__ void AddMaskByMask(std::uint32_t values, const std::uint32_t (&weights)[kRowMmas][2],
                                                int first_key) {
    const int key = first_key + Traits::lane() % 4 * 2;
#pragma unroll 1
    for (int mask_idx = 0; mask_idx < options_.num_masks(); ++mask_idx) {
      const auto mask = options_.MaskAt(mask_idx);
      const std::uint32_t low = options_.PairMask(mask, key), high = options_.PairMask(mask, key + 8);
#pragma unroll
      for (int i = 0; i < Traits::kDimSteps; ++i) {
        std::uint32_t value[4];
        LdMatrixX4Transposed(value, AtStep(values, value_row_, i));
        const std::uint32_t seen[4] = {value[0] & low, value[1] & low, value[2] & high, value[3] & high};
#pragma unroll
        for (int n = 0; n < kRowMmas; ++n) {
          float product[4] = {};
          Mma16816<T>(product, seen, weights[n][0], weights[n][1]);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            if (options_.MaskOf(n, j % 2) == mask_idx) output_[i][n][j] += product[j];
          }
        }
      }
    }
  }

  float log2_scale_;
  std::uint32_t key_row_;    // of the lane's row of a tile, for ldmatrix
  std::uint32_t value_row_;  // likewise
  int key_end_;
  std::uint32_t query_[Traits::kKeepsQuery ? Traits::kDimSteps : 1][kRowMmas][2];
  const unsigned* query_row_[kRowMmas];  // the lane's first pair of row 8 * n + lane / 4
  int query_chunks_[kRowMmas];           // of 8 columns, that there are
  float output_[Traits::kDimSteps][kRowMmas][4];
  float maximum_[kRowMmas][2];
  float sum_[kRowMmas][2];  // of the lane's keys
  [[no_unique_address]] std::conditional_t<Traits::kHasOptions, ScoreOptions<Traits>, NoScoreOptions> options_;
};

}  // namespace ridgeline::kernels::attention
