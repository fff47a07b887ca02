// The two products of streamed attention, of a few rows with a few tokens, for code compiled once per SIMD target (hence no
// ordinary include guard). Lanes are head dims. Elements are widened in registers, as they lie in memory:
//
//   float32, float16   a vector of neighbours            x0 x1 ..
//   bfloat16           a vector of evens, one of odds    x0 x2 .. │ x1 x3 ..    by a shift and a mask, without a shuffle
//
// Queries and outputs lie in the same order, so products never see it: PlaceOf says where an element is.
#if defined(RIDGELINE_KERNELS_ATTENTION_FLASH_STREAM_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_KERNELS_ATTENTION_FLASH_STREAM_PRODUCTS_INL_H_
#undef RIDGELINE_KERNELS_ATTENTION_FLASH_STREAM_PRODUCTS_INL_H_
#else
#define RIDGELINE_KERNELS_ATTENTION_FLASH_STREAM_PRODUCTS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/attention/flash/lanes-inl.h"
#include "kernels/attention/flash/row_window.h"
#include "kernels/common/float16.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::attention::HWY_NAMESPACE {

inline constexpr std::int64_t kTokens = kStreamedTokens;

template <typename T>
inline constexpr bool kEvensFirst = std::is_same_v<T, BFloat16>&& HWY_TARGET != HWY_SCALAR;

// Vectors, and elements, that products take at a time.
template <typename T>
inline constexpr int kStepVectors = kEvensFirst<T> ? 2 : 1;
template <typename T>
inline constexpr std::int64_t kStepElems = kStepVectors<T>* kLanes;

// Where element `dim` of `dims` lies in queries and outputs. What is left behind the last whole step keeps its order.
template <typename T>
constexpr std::int64_t PlaceOf(std::int64_t dim, std::int64_t dims) {
  const std::int64_t in_step = dim % kStepElems<T>, step = dim - in_step;
  if (!kEvensFirst<T> || step + kStepElems < T >> dims) return dim;
  return step + in_step % 2 * kLanes + in_step / 2;
}

// The vectors of one step.
template <typename T>
HWY_INLINE void LoadStep(const T* from, Vector* to) {
  const Lanes d;
  if constexpr (kEvensFirst<T>) {
    const hn::RebindToUnsigned<Lanes> words;
    const auto pairs = hn::BitCast(words, hn::LoadU(hn::Repartition<std::uint16_t, Lanes>(), &from->bits));
    to[0] = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
    to[1] = hn::BitCast(d, hn::And(pairs, hn::Set(words, 0xffff0000u)));
  } else {
    to[0] = LoadFloat32(d, from);
  }
}

// The vectors of kCount rows, step by step, from element `first` of each on: function(vectors[kCount], dim) for each vector.
template <std::int64_t kCount, typename T, typename BeforeStep, typename Function>
HWY_INLINE void ForEachVector(const T* const* rows, std::int64_t first, std::int64_t dims, const BeforeStep& before_step,
                              const Function& function) {
  const T* row[kCount];
  for (std::int64_t k = 0; k < kCount; ++k) row[k] = rows[k] + first;
  std::int64_t dim = 0;
  for (; dim + kStepElems<T> <= dims; dim += kStepElems<T>) {
    before_step();
    Vector step[kCount][kStepVectors<T>], vectors[kStepVectors<T>][kCount];
    HWY_UNROLL(4)
    for (std::int64_t k = 0; k < kCount; ++k) LoadStep(row[k] + dim, step[k]);
    HWY_UNROLL(2)
    for (int v = 0; v < kStepVectors<T>; ++v) {
      HWY_UNROLL(4)
      for (std::int64_t k = 0; k < kCount; ++k) vectors[v][k] = step[k][v];
      function(vectors[v], dim + v * kLanes);
    }
  }
  for (; dim < dims; dim += kLanes) {
    before_step();
    Vector vectors[kCount];
    HWY_UNROLL(4)
    for (std::int64_t k = 0; k < kCount; ++k) vectors[k] = LoadColumns(row[k] + dim, dims - dim);
    function(vectors, dim);
  }
}

// Lane k of the result: the sum of all lanes of v[k], in a vector of kTokens lanes stored at `to`.
HWY_INLINE void StoreSums(const Vector* v, float* to) {
  const Lanes d;
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t k = 0; k < kTokens; ++k) hn::StoreU(v[k], d, to + k);
#else
  const hn::Repartition<std::uint64_t, Lanes> pairs;
  const auto sum_01 = hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1])));
  const auto sum_23 = hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3])));
  const Vector sum = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, sum_01, sum_23)),
                             hn::BitCast(d, hn::InterleaveUpper(pairs, sum_01, sum_23)));
  // Each 128-bit block of `sum` holds partial sums of the 4 dot products.
  const hn::Half<Lanes> half;
  if constexpr (kLanes == 16) {
    const hn::Half<decltype(half)> quarter;
    const auto two = hn::Add(hn::LowerHalf(half, sum), hn::UpperHalf(half, sum));
    hn::StoreU(hn::Add(hn::LowerHalf(quarter, two), hn::UpperHalf(quarter, two)), quarter, to);
  } else if constexpr (kLanes == 8) {
    hn::StoreU(hn::Add(hn::LowerHalf(half, sum), hn::UpperHalf(half, sum)), half, to);
  } else {
    hn::StoreU(sum, d, to);
  }
#endif
}

// Rows of a scratch array.
struct ScratchRows {
  float* data;
  std::int64_t stride;

  float* operator[](std::int64_t row) const { return data + row * stride; }
  ScratchRows From(std::int64_t row, std::int64_t column = 0) const { return {(*this)[row] + column, stride}; }
};

// scores[row][k] = query[row] · keys[k] for kRows rows and kTokens keys, whose head begins at element `head`. Calls
// before_step() before each step of dims.
template <int kRows, typename T, typename BeforeStep>
HWY_INLINE void MultiplyKeys(const T* const* keys, std::int64_t head, std::int64_t dims, ScratchRows query, ScratchRows scores,
                             const BeforeStep& before_step) {
  const Lanes d;
  Vector sum[kRows][kTokens];
  for (auto& sums : sum) {
    for (Vector& v : sums) v = hn::Zero(d);
  }
  ForEachVector<kTokens>(keys, head, dims, before_step, [&](const Vector* k_lanes, std::int64_t dim) HWY_ATTR {
    HWY_UNROLL(4)
    for (std::int64_t r = 0; r < kRows; ++r) {
      const Vector q = hn::LoadU(d, query[r] + dim);
      HWY_UNROLL(4)
      for (std::int64_t k = 0; k < kTokens; ++k) sum[r][k] = hn::MulAdd(q, k_lanes[k], sum[r][k]);
    }
  });
  for (std::int64_t r = 0; r < kRows; ++r) StoreSums(sum[r], scores[r]);
}

// output[row] += sum over k of probabilities[row][k] * values[k] for kRows rows and kCount values, whose head begins at element
// `head`. Output rows are padded to whole vectors.
template <int kRows, std::int64_t kCount, typename T, typename BeforeStep>
HWY_INLINE void AddValues(const T* const* values, std::int64_t head, std::int64_t dims, ScratchRows probabilities,
                          ScratchRows output, const BeforeStep& before_step) {
  const Lanes d;
  Vector p[kRows][kCount];
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t k = 0; k < kCount; ++k) p[r][k] = hn::Set(d, probabilities[r][k]);
  }
  ForEachVector<kCount>(values, head, dims, before_step, [&](const Vector* v_lanes, std::int64_t dim) HWY_ATTR {
    HWY_UNROLL(4)
    for (std::int64_t r = 0; r < kRows; ++r) {
      Vector sum = hn::LoadU(d, output[r] + dim);
      HWY_UNROLL(4)
      for (std::int64_t k = 0; k < kCount; ++k) sum = hn::MulAdd(p[r][k], v_lanes[k], sum);
      hn::StoreU(sum, d, output[r] + dim);
    }
  });
}

}  // namespace ridgeline::kernels::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RIDGELINE_KERNELS_ATTENTION_FLASH_STREAM_PRODUCTS_INL_H_
