// Operations that need statistics of whole rows, fused: a team of threads reads its row once, holds it in registers while it
// merges the statistic, and writes the result.
//
//   gmem x (+ o) ──16-byte words──► registers ──part──► statistic of the row ─┐
//                                        └────────────── (x - mean) · r · w + b ──► gelu, dropout ──► gmem y
//
// A warp's words are neighbours, and so are the warps' stretches:
//
//   row   │ warp 0: word 0 of lanes 0..31, word 1 of lanes 0..31, ... │ warp 1 │ ... │ warp 0 of the cluster's next block │ ...
//
// A row that is longer than a team holds is read in chunks: all but the last once more for the result.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/common/approximate_math.cuh"
#include "kernels/common/cluster.cuh"
#include "kernels/fused/fused.h"
#include "kernels/fused/row_columns.cuh"
#include "kernels/fused/row_measure.cuh"
#include "kernels/fused/row_norm.cuh"
#include "kernels/fused/row_part.cuh"
#include "kernels/fused/row_softmax.cuh"
#include "kernels/fused/row_stage.cuh"
#include "kernels/fused/row_statistics.cuh"
#include "kernels/fused/row_team.cuh"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

// What follows a norm.
enum class Epilogue { kNone, kGeluErfDropout, kGeluTanhDropout };

template <Epilogue kEpilogue>
inline constexpr bool kHasDropout = kEpilogue != Epilogue::kNone;

// Weights of a row that one block has are on their way while it measures, where registers have room for them.
template <typename T, typename Statistic, RowAccess kAccess>
using Weights = ColumnWords<T, kAccess, kIsBlock<kAccess> && std::is_same_v<Statistic, SumOfSquares>>;

template <typename T, typename Statistic, Epilogue kEpilogue, bool kIsPlain, RowAccess kAccess>
__device__ __forceinline__ void StoreRow(const RowArguments& arguments, const RowPart<T, kAccess>& part,
                                         const Weights<T, Statistic, kAccess>& weights, const MeasuredRow<Statistic>& row,
                                         int chunk, const Held<T>& held) {
  constexpr int kElems = kVectorElems<T>;
  if constexpr (std::is_same_v<Statistic, MaxSum>) {
    const float shift = row.whole.shift();
    const float factor = 1.0f / row.whole.sum();
    part.ForEachWord(arguments, chunk, held, [&](int word, float(&x)[kElems]) {
#pragma unroll
      for (float& element : x) element = MaxSum::Exp(element - shift) * factor;
      part.StoreWord(arguments, arguments.output, chunk, word, x);
    });
  } else {
    // An infinite sum stays one: rms_norm makes zeros of what is finite in such a row.
    const float mean_square = row.whole.squares() * ApproximateReciprocal(static_cast<float>(arguments.row_elems));
    const float factor = rsqrtf(mean_square + arguments.epsilon * (row.scale * row.scale));
    const Normalization by = {
        .scale = row.scale, .mean = row.whole.mean(), .factor = factor, .shift = -row.whole.mean() * factor};
    const ColumnWords<T, kAccess, false> biases(part, arguments.bias, kZeros<T>);
    std::uint32_t drawn[kHeldWords<T>][kElems / 2];  // of kFull.., all at once
    if constexpr (kHasDropout<kEpilogue> && kIsFull<kAccess>) {
      BitsOfWords<T>(arguments.dropout, part.row_begin + part.first_column, part.WordStride(), drawn);
    }
    part.ForEachWord(arguments, chunk, held, [&](int word, float(&x)[kElems]) {
      const Vector<T> weight = weights.Word(arguments, part, chunk, word);
      if constexpr (std::is_same_v<Statistic, MeanVariance>) {
        Normalize<kIsPlain, T>(by, weight, biases.Word(arguments, part, chunk, word), x);
      } else {
        Normalize<kIsPlain, T>(by, weight, x);
      }
      const int column = part.Column(arguments, chunk, word);
      if constexpr (kHasDropout<kEpilogue> && !kIsFull<kAccess> && kAccess != RowAccess::kElements) {
        BitsOfWord<T>(arguments.dropout, part.row_begin + column, drawn[word]);
      }
      if constexpr (kEpilogue == Epilogue::kGeluErfDropout)
        GeluDropout<GeluForm::kErf>(arguments, part, column, drawn[word], x);
      if constexpr (kEpilogue == Epilogue::kGeluTanhDropout)
        GeluDropout<GeluForm::kTanh>(arguments, part, column, drawn[word], x);
      part.StoreWord(arguments, arguments.output, chunk, word, x);
    });
  }
}

// A row of one chunk: its exponentials are made once.
template <typename T, RowAccess kAccess>
__device__ __forceinline__ void SoftmaxRow(const RowArguments& arguments, const RowPart<T, kAccess>& part, Team& team,
                                           const Held<T>& held) {
  constexpr int kElems = kVectorElems<T>;
  float exponentials[kThreadElems];
  const MaxSum own = Exponentials<T>(held, exponentials);
  const MaxSum whole = team.Merge(own.MergedOver(part.lanes()));
  const float factor = MaxSum::Exp(own.fields[0] - whole.shift()) / whole.sum();
#pragma unroll
  for (int v = 0; v < kHeldWords<T>; ++v) {
    if (!part.HasAny(part.Column(arguments, 0, v))) continue;
    float y[kElems];
#pragma unroll
    for (int i = 0; i < kElems; ++i) y[i] = exponentials[v * kElems + i] * factor;
    part.StoreWord(arguments, arguments.output, 0, v, y);
  }
}

// Of a block. Registers are shared out by them.
template <typename T, RowAccess kAccess, bool kHasOther>
constexpr int MostRowThreads() {
  constexpr int kMost = 1024, kStaged = kMostStageBytes / ((kHasOther ? 2 : 1) * kThreadElems * static_cast<int>(sizeof(T)));
  return kIsBlock<kAccess> ? kMostBlockRowThreads : kIsStaged<kAccess> && kStaged < kMost ? kStaged : kMost;
}

template <typename T, typename Statistic, RowAccess kAccess, Epilogue kEpilogue, bool kHasOther>
__global__ void __launch_bounds__(MostRowThreads<T, kAccess, kHasOther>(), kIsBlock<kAccess> ? 2 : 1)
    RowKernel(const __grid_constant__ RowArguments arguments) {
  __shared__ Team::Slots smem_slots;
  Team team(smem_slots, ClusterBlocks<kAccess>(arguments));
  const unsigned block_rows = kHasWholeWarps<kAccess> ? 1 : blockDim.y;
  const bool has_clusters = ClusterBlocks<kAccess>(arguments) > 1;
  const std::int64_t first = std::int64_t{has_clusters ? ClusterIdx() : blockIdx.x} * block_rows;
  const std::int64_t step = std::int64_t{has_clusters ? NumClusters() : gridDim.x} * block_rows;
  RowStage<T, kHasOther> stage(arguments);
  if constexpr (kIsStaged<kAccess>) stage.Start(first);
  for (std::int64_t begin = first; begin < arguments.num_rows; begin += step) {  // of kBlock: once
    const RowPart<T, kAccess> part(arguments, kHasWholeWarps<kAccess> ? begin : begin + threadIdx.y);
    Held<T> held;
    if constexpr (kIsStaged<kAccess>) stage.Take(part, begin + step, kOutside<Statistic>, held);
    if constexpr (std::is_same_v<Statistic, MaxSum>) {
      if (NumChunks<kAccess>(arguments) == 1) {
        if (!kIsStaged<kAccess>) LoadChunk<kHasOther>(arguments, part, 0, /*is_first_time=*/true, kOutside<Statistic>, held);
        SoftmaxRow(arguments, part, team, held);
        if constexpr (kIsBlock<kAccess>) return;
        continue;
      }
    }
    const Weights<T, Statistic, kAccess> weights(part, arguments.weight, kOnes<T>);
    const MeasuredRow<Statistic> row = MeasureRow<Statistic, kHasOther>(arguments, part, team, held);
    for (int chunk = NumChunks<kAccess>(arguments) - 1;;) {
      if (kHasMoments<T, Statistic> && row.is_plain) {
        StoreRow<T, Statistic, kEpilogue, true>(arguments, part, weights, row, chunk, held);
      } else {
        StoreRow<T, Statistic, kEpilogue, false>(arguments, part, weights, row, chunk, held);
      }
      if (--chunk < 0) break;
      LoadChunk<kHasOther>(arguments, part, chunk, /*is_first_time=*/false, 0.0f, held);
    }
    if constexpr (kIsBlock<kAccess>) return;
  }
}

}  // namespace ridgeline::kernels::fused
