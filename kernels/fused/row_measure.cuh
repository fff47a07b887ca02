// The statistic of a row that a team holds: by sums where they have the digits, and exactly where they don't.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <type_traits>

#include "kernels/fused/row_moments.cuh"
#include "kernels/fused/row_part.cuh"
#include "kernels/fused/row_softmax.cuh"
#include "kernels/fused/row_statistics.cuh"
#include "kernels/fused/row_team.cuh"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

template <typename Statistic>
inline constexpr float kOutside =
    std::is_same_v<Statistic, MaxSum> ? -INFINITY : 0.0f;  // what elements outside of a row count as

// A warp's part of the statistic of one chunk (a team's, where it is narrower), of elements times `scale`.
template <typename Statistic, typename T, RowAccess kAccess>
__device__ __forceinline__ Statistic Measure(const RowArguments& arguments, const RowPart<T, kAccess>& part, int chunk,
                                             float scale, const Held<T>& held) {
  constexpr int kElems = kVectorElems<T>;
  Statistic own;
  if constexpr (std::is_same_v<Statistic, MaxSum>) {
    float exponentials[kThreadElems];
    return Exponentials(held, exponentials).MergedOver(part.lanes());
  } else if constexpr (std::is_same_v<Statistic, SumOfSquares>) {
    part.ForEachWord(arguments, chunk, held, [&own, scale](int, const float(&x)[kElems]) {
#pragma unroll
      for (int i = 0; i < kElems; ++i) own.fields[0] = fmaf(x[i] * scale, x[i] * scale, own.fields[0]);
    });
    return own.MergedOver(part.lanes());
  } else {
    float sum = 0;
    part.ForEachWord(arguments, chunk, held, [&sum, scale](int, const float(&x)[kElems]) {
#pragma unroll
      for (int i = 0; i < kElems; ++i) sum = fmaf(x[i], scale, sum);  // outside of the row there are zeros
    });
    const auto count = static_cast<float>(part.WarpElems(arguments, chunk));
    sum = SumOfLanes(sum, part.lanes());
    const float mean = count > 0 ? DivideByCount(sum, count) : 0.0f;
    float squares = 0;
    part.ForEachWord(arguments, chunk, held, [&](int word, const float(&x)[kElems]) {
      const int column = part.Column(arguments, chunk, word);
      const bool whole = kAccess != RowAccess::kElements || part.bounds.template HoldWhole<T>(column);
#pragma unroll
      for (int i = 0; i < kElems; ++i) {
        const float distance = fmaf(x[i], scale, -mean);
        if (whole || part.bounds.Hold(column + i)) squares = fmaf(distance, distance, squares);
      }
    });
    return {{count, mean, SumOfLanes(squares, part.lanes())}};
  }
}

// The statistic of a row, and the factor that its elements were taken times.
template <typename Statistic>
struct MeasuredRow {
  Statistic whole;
  float scale = 1;
  bool is_plain = false;  // neither is there a scale, nor is the mean so far from 0 that distances to it lose digits
};

template <typename T, typename Statistic>
inline constexpr bool kHasMoments = sizeof(T) == 2 && !std::is_same_v<Statistic, MaxSum>;

// A norm's statistic by sums over the row. False if their difference has lost digits that count: where the mean is far from 0
// beside the elements' spread, and where squares overflow or all but vanish. What the sums are off by, 2^-21 of them, is then
// below 2^-16 of the variance.
template <typename Statistic>
__device__ __forceinline__ bool StatisticOf(const Moments& moments, int row_elems, Statistic& statistic) {
  constexpr float kLeastSquares = 0x1p-60f;
  constexpr float kMostSquaredMean = 8;  // times the variance
  const bool in_range = moments.squares() > kLeastSquares && isfinite(moments.squares());
  if constexpr (std::is_same_v<Statistic, SumOfSquares>) {
    statistic = {{moments.squares()}};
    return in_range;
  } else {
    const auto count = static_cast<float>(row_elems);
    const float mean = DivideByCount(moments.sum(), count);
    const float squares = fmaf(-moments.sum(), mean, moments.squares());
    statistic = {{count, mean, squares}};
    return in_range && moments.sum() * mean <= kMostSquaredMean * squares;
  }
}

// Squares of finite elements may overflow, and sums too. Then all elements are taken times 2^-76, which is exact where it
// matters: n * (2^52)^2 is far below the limit, and an element that becomes subnormal is nothing beside the one that
// overflowed. `held` has the row's first chunk, if is_loaded, and in the end its last.
template <typename Statistic, bool kHasOther, typename T, RowAccess kAccess>
__device__ __forceinline__ MeasuredRow<Statistic> MeasureExactly(const RowArguments& arguments, const RowPart<T, kAccess>& part,
                                                                 Team& team, bool is_loaded, Held<T>& held) {
  constexpr float kSmallScale = 0x1p-76f;
  MeasuredRow<Statistic> row;
  for (bool is_first_time = !is_loaded;; is_first_time = false) {
    Statistic own;
    for (int chunk = 0; chunk < NumChunks<kAccess>(arguments); ++chunk) {
      if (is_first_time || NumChunks<kAccess>(arguments) > 1) {
        LoadChunk<kHasOther>(arguments, part, chunk, is_first_time, kOutside<Statistic>, held);
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

template <typename Statistic, bool kHasOther, typename T, RowAccess kAccess>
__device__ __forceinline__ MeasuredRow<Statistic> MeasureRow(const RowArguments& arguments, const RowPart<T, kAccess>& part,
                                                             Team& team, Held<T>& held) {
  bool is_loaded = kIsStaged<kAccess>;
  if constexpr (!kHasMoments<T, Statistic>) {
    return MeasureExactly<Statistic, kHasOther>(arguments, part, team, is_loaded, held);
  } else {
    MeasuredRow<Statistic> row;
    bool has_digits = false;
    if (part.lanes() >= QuadMoments<T>::kLanes) {
      QuadMoments<T> quad;
      for (int chunk = 0; chunk < NumChunks<kAccess>(arguments); ++chunk) {
        if (!is_loaded || chunk > 0) {
          LoadChunk<kHasOther>(arguments, part, chunk, /*is_first_time=*/true, kOutside<Statistic>, held);
        }
#pragma unroll
        for (const Vector<T>& word : held) quad.Add(word);
      }
      is_loaded = true;
      row.is_plain = true;
      has_digits = StatisticOf(team.Merge(quad.MergedOver(part.lanes())), arguments.row_elems, row.whole);
      if (__all_sync(0xffffffff, has_digits)) return row;
    }
    const MeasuredRow<Statistic> exact = MeasureExactly<Statistic, kHasOther>(arguments, part, team, is_loaded, held);
    return has_digits ? row : exact;  // whatever teams share its warp
  }
}

}  // namespace ridgeline::kernels::fused
