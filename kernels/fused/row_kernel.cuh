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

#include "kernels/common/cluster.cuh"
#include "kernels/fused/activations.cuh"
#include "kernels/fused/dropout.h"
#include "kernels/fused/dropout_mask.cuh"
#include "kernels/fused/fused.h"
#include "kernels/fused/row_part.cuh"
#include "kernels/fused/row_schedule.h"
#include "kernels/fused/row_stage.cuh"
#include "kernels/fused/row_statistics.cuh"
#include "kernels/fused/row_team.cuh"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

inline constexpr int kMostRowThreads = 1024;

// What follows a norm.
enum class Epilogue { kNone, kGeluErfDropout, kGeluTanhDropout };

// A warp's part of the statistic of one chunk (a team's, where it is narrower), of elements times `scale`.
template <typename Statistic, typename T, RowAccess kAccess>
__device__ __forceinline__ Statistic Measure(const RowArguments& arguments, const RowPart<T, kAccess>& part, int chunk,
                                             float scale, const Held<T>& held) {
  constexpr int kElems = kVectorElems<T>;
  const int lanes = min(static_cast<int>(blockDim.x), kWarpThreads);
  Statistic own;
  if constexpr (std::is_same_v<Statistic, MaxSum>) {
    part.ForEachWord(arguments, chunk, held, [&own](int, const float(&x)[kElems]) {
#pragma unroll
      for (int i = 0; i < kElems; ++i) own.fields[0] = fmaxf(own.fields[0], x[i]);
    });
    const float shift = own.shift();
    part.ForEachWord(arguments, chunk, held, [&own, shift](int, const float(&x)[kElems]) {
#pragma unroll
      for (int i = 0; i < kElems; ++i) own.fields[1] += MaxSum::Exp(x[i] - shift);
    });
    return own.MergedOver(lanes);
  } else if constexpr (std::is_same_v<Statistic, SumOfSquares>) {
    part.ForEachWord(arguments, chunk, held, [&own, scale](int, const float(&x)[kElems]) {
#pragma unroll
      for (int i = 0; i < kElems; ++i) own.fields[0] = fmaf(x[i] * scale, x[i] * scale, own.fields[0]);
    });
    return own.MergedOver(lanes);
  } else {
    float sum = 0;
    part.ForEachWord(arguments, chunk, held, [&sum, scale](int, const float(&x)[kElems]) {
#pragma unroll
      for (int i = 0; i < kElems; ++i) sum = fmaf(x[i], scale, sum);  // outside of the row there are zeros
    });
    const auto count = static_cast<float>(part.WarpElems(arguments, chunk));
    sum = SumOfLanes(sum, lanes);
    const float mean = count > 0 ? DivideByCount(sum, count) : 0.0f;
    float squares = 0;
    part.ForEachWord(arguments, chunk, held, [&](int column, const float(&x)[kElems]) {
      const bool whole = kAccess != RowAccess::kElements || part.bounds.template HoldWhole<T>(column);
#pragma unroll
      for (int i = 0; i < kElems; ++i) {
        const float distance = fmaf(x[i], scale, -mean);
        if (whole || part.bounds.Hold(column + i)) squares = fmaf(distance, distance, squares);
      }
    });
    return {{count, mean, SumOfLanes(squares, lanes)}};
  }
}

// What a norm does with an element: (x * scale - mean) * factor * weight + bias.
struct Normalization {
  float scale, mean, factor;
};

template <typename T, RowAccess kAccess>
__device__ __forceinline__ void Normalize(const RowArguments& arguments, const RowPart<T, kAccess>& part,
                                          const Normalization& by, int column, float (&x)[kVectorElems<T>]) {
#pragma unroll
  for (float& element : x) element = fmaf(element, by.scale, -by.mean) * by.factor;
  if (arguments.weight != nullptr) {
    float weight[kVectorElems<T>];
    part.LoadColumns(arguments.weight, column).Unpack(weight);
#pragma unroll
    for (int i = 0; i < kVectorElems<T>; ++i) x[i] *= weight[i];
  }
  if (arguments.bias != nullptr) {
    float bias[kVectorElems<T>];
    part.LoadColumns(arguments.bias, column).Unpack(bias);
#pragma unroll
    for (int i = 0; i < kVectorElems<T>; ++i) x[i] += bias[i];
  }
}

template <GeluForm kForm, typename T, RowAccess kAccess>
__device__ __forceinline__ void GeluDropout(const RowArguments& arguments, const RowPart<T, kAccess>& part, int column,
                                            float (&x)[kVectorElems<T>]) {
  const std::int64_t position = part.row_begin + column;
  std::uint32_t kept;
  if constexpr (kAccess == RowAccess::kElements) {
    kept = KeptAnywhere<T>(arguments.dropout, position);
  } else {
    kept = KeptOfWord<T>(arguments.dropout, position);
  }
#pragma unroll
  for (float& element : x) element = Gelu<T>(kForm, element);
#pragma unroll
  for (int i = 0; i < kVectorElems<T>; ++i) x[i] = (kept >> i) & 1 ? x[i] * arguments.dropout.scale : 0.0f;
  if (arguments.mask != nullptr) StoreMask<T>(arguments.mask + part.row_begin, column, part.bounds, kept);
}

// The statistic of a row, and the factor that its elements were taken times.
template <typename Statistic>
struct MeasuredRow {
  Statistic whole;
  float scale = 1;
};

// Squares of finite elements may overflow, and sums too. Then all elements are taken times 2^-76, which is exact where it
// matters: n * (2^52)^2 is far below the limit, and an element that becomes subnormal is nothing beside the one that
// overflowed. `held` has the row's first chunk, if is_loaded, and in the end its last.
template <typename Statistic, typename T, RowAccess kAccess>
__device__ __forceinline__ MeasuredRow<Statistic> MeasureRow(const RowArguments& arguments, const RowPart<T, kAccess>& part,
                                                             Team<Statistic>& team, Held<T>& held) {
  constexpr float kSmallScale = 0x1p-76f;
  constexpr float kOutside = std::is_same_v<Statistic, MaxSum> ? -INFINITY : 0.0f;
  MeasuredRow<Statistic> row;
  for (bool is_first_time = true;; is_first_time = false) {
    Statistic own;
    for (int chunk = 0; chunk < arguments.chunks; ++chunk) {
      if (kAccess != RowAccess::kStaged && (is_first_time || arguments.chunks > 1)) {
        LoadChunk(arguments, part, chunk, is_first_time, kOutside, held);
      }
      const Statistic measured = Measure<Statistic>(arguments, part, chunk, row.scale, held);
      own = chunk == 0 ? measured : own.MergedWith(measured);
    }
    row.whole = team.Merge(own);
    const bool again = row.scale == 1 && !row.whole.IsFinite();
    if (!__any_sync(0xffffffff, again)) return row;  // teams that share a warp go on together
    if (again) row.scale = kSmallScale;
  }
}

template <typename T, typename Statistic, RowAccess kAccess, Epilogue kEpilogue>
__device__ __forceinline__ void StoreRow(const RowArguments& arguments, const RowPart<T, kAccess>& part,
                                         const MeasuredRow<Statistic>& row, int chunk, const Held<T>& held) {
  constexpr int kElems = kVectorElems<T>;
  T* const output = static_cast<T*>(arguments.output) + part.row_begin;
  if constexpr (std::is_same_v<Statistic, MaxSum>) {
    const float shift = row.whole.shift();
    const float factor = 1.0f / row.whole.sum();
    part.ForEachWord(arguments, chunk, held, [&](int column, float(&x)[kElems]) {
#pragma unroll
      for (float& element : x) element = MaxSum::Exp(element - shift) * factor;
      part.StoreWord(output, column, x, arguments.rows_lie_alike);
    });
  } else {
    const float mean_square = row.whole.squares() / static_cast<float>(arguments.row_elems);
    const float factor = rsqrtf(mean_square + arguments.epsilon * (row.scale * row.scale));
    const Normalization by = {.scale = row.scale, .mean = row.whole.mean(), .factor = factor};
    part.ForEachWord(arguments, chunk, held, [&](int column, float(&x)[kElems]) {
      Normalize(arguments, part, by, column, x);
      if constexpr (kEpilogue == Epilogue::kGeluErfDropout) GeluDropout<GeluForm::kErf>(arguments, part, column, x);
      if constexpr (kEpilogue == Epilogue::kGeluTanhDropout) GeluDropout<GeluForm::kTanh>(arguments, part, column, x);
      part.StoreWord(output, column, x, arguments.rows_lie_alike);
    });
  }
}

template <typename T, typename Statistic, RowAccess kAccess, Epilogue kEpilogue>
__global__ void __launch_bounds__(kMostRowThreads) RowKernel(const __grid_constant__ RowArguments arguments) {
  __shared__ typename Team<Statistic>::Slots smem_slots;
  Team<Statistic> team(smem_slots, arguments.cluster_blocks);
  const std::int64_t first = std::int64_t{blockIdx.x} / arguments.cluster_blocks * blockDim.y;
  const std::int64_t step = std::int64_t{gridDim.x} / arguments.cluster_blocks * blockDim.y;
  RowStage<T> stage(arguments);
  if constexpr (kAccess == RowAccess::kStaged) stage.Start(first);
  for (std::int64_t begin = first; begin < arguments.num_rows; begin += step) {
    const RowPart<T, kAccess> part(arguments, begin + threadIdx.y);
    Held<T> held;
    if constexpr (kAccess == RowAccess::kStaged) stage.Take(part, begin + step, held);
    const MeasuredRow<Statistic> row = MeasureRow(arguments, part, team, held);
    for (int chunk = arguments.chunks - 1;;) {
      StoreRow<T, Statistic, kAccess, kEpilogue>(arguments, part, row, chunk, held);
      if (--chunk < 0) break;
      LoadChunk(arguments, part, chunk, /*is_first_time=*/false, 0.0f, held);
    }
  }
}

}  // namespace ridgeline::kernels::fused
