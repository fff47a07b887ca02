// Small pieces that both paths of flash attention share, for code compiled once per SIMD target (hence no ordinary include
// guard).
#if defined(RIDGELINE_KERNELS_ATTENTION_FLASH_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_KERNELS_ATTENTION_FLASH_LANES_INL_H_
#undef RIDGELINE_KERNELS_ATTENTION_FLASH_LANES_INL_H_
#else
#define RIDGELINE_KERNELS_ATTENTION_FLASH_LANES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/attention/flash/row_block.h"
#include "kernels/attention/flash/token_rows.h"
#include "kernels/common/float16-inl.h"
#include "kernels/common/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::attention::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using namespace kernels::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the same target's primitives

using Lanes = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;
inline constexpr std::int64_t kLanes = hn::MaxLanes(Lanes());
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Head dims are multiples of 8, so a row ends with a whole vector, or with half a vector of 16.
template <typename T>
HWY_INLINE Vector LoadColumns(const T* from, [[maybe_unused]] std::int64_t columns_left) {
  const Lanes d;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kLanes == 16) {
    const hn::Half<Lanes> half;
    if (columns_left < kLanes) return hn::ZeroExtendVector(d, LoadFloat32(half, from));
  }
#endif
  return LoadFloat32(d, from);
}

template <typename T>
HWY_INLINE void StoreColumns(Vector v, T* to, [[maybe_unused]] std::int64_t columns_left) {
  const Lanes d;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kLanes == 16) {
    const hn::Half<Lanes> half;
    if (columns_left < kLanes) return StoreFloat32(hn::LowerHalf(half, v), half, to);
  }
#endif
  StoreFloat32(v, d, to);
}

HWY_INLINE void StoreColumnsAs(DataType type, Vector v, void* to, std::int64_t element, std::int64_t columns_left) {
  switch (type) {
    case DataType::kFloat16:
      return StoreColumns(v, static_cast<Float16*>(to) + element, columns_left);
    case DataType::kBFloat16:
      return StoreColumns(v, static_cast<BFloat16*>(to) + element, columns_left);
    default:
      return StoreColumns(v, static_cast<float*>(to) + element, columns_left);
  }
}

// Copies rows to a dense tile [rows, columns], of float32 or of T; says whether all elements are finite.
template <typename T, typename Tile>
HWY_INLINE bool LoadTile(const T* from, std::int64_t row_stride, std::int64_t rows, std::int64_t columns, Tile* tile) {
  const Lanes d;
  Vector zero_or_nan = hn::Zero(d);  // 0 * x is NaN for x infinite or NaN
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; column += kLanes) {
      const Vector v = LoadColumns(from + column, columns - column);
      zero_or_nan = hn::MulAdd(v, hn::Zero(d), zero_or_nan);
      if constexpr (std::is_same_v<Tile, float>) StoreColumns(v, tile + column, columns - column);
    }
    if constexpr (!std::is_same_v<Tile, float>) std::copy_n(from, columns, tile);
    from += row_stride;
    tile += columns;
  }
  return hn::AllTrue(d, hn::Eq(zero_or_nan, hn::Zero(d)));
}

// The same for the first `columns` columns of tokens.
template <typename T, typename Tile>
HWY_INLINE bool LoadTile(const TokenRows<T>& rows, KeyRange keys, std::int64_t columns, Tile* tile) {
  bool finite = true;
  rows.ForEachRun(keys, [&](const typename TokenRows<T>::Run& run, std::int64_t row) HWY_ATTR {
    finite &= LoadTile(run.first, rows.stride_elems(), run.tokens, columns, tile + row * columns);
  });
  return finite;
}

// Of the scale, what the query takes, and what is left for each logit. The query takes all of it where that is as good: it is
// there once, not once a key. A large scale could make it infinite though no logit is, and a tiny one could make it subnormal.
struct ScaleParts {
  float query;
  float logit;
};

inline ScaleParts SplitScale(float scale) {
  const float magnitude = std::abs(scale);
  if (magnitude >= 0x1p-32f && magnitude <= 1) return {.query = scale, .logit = 1};
  return {.query = 1, .logit = scale};
}

// The logit's part of the scale, soft cap cap * tanh(logit / cap), then ALiBi's penalty.
struct LogitTransform {
  float scale;
  float soft_cap;  // 0 = none
  bool has_alibi;

  explicit LogitTransform(const AttentionParams& params)
      : scale(SplitScale(params.scale).logit), soft_cap(params.logit_soft_cap), has_alibi(params.alibi_slopes != nullptr) {}

  bool IsIdentity() const { return scale == 1 && soft_cap <= 0 && !has_alibi; }

  HWY_INLINE Vector operator()(Vector logit, Vector slope, Vector distance) const {
    const Lanes d;
    logit = hn::Mul(logit, hn::Set(d, scale));
    if (soft_cap > 0) {
      const Vector cap = hn::Set(d, soft_cap);
      logit = hn::Mul(cap, Tanh(d, hn::Div(logit, cap)));
    }
    if (has_alibi) logit = hn::NegMulAdd(slope, distance, logit);
    return logit;
  }
};

// A bias of -inf hides its key, so the logit is -inf even where the key's product is NaN.
HWY_INLINE Vector AddBiasTo(Vector logit, Vector bias) {
  const Lanes d;
  return hn::IfThenElse(hn::Eq(bias, hn::Set(d, -kInfinity)), bias, hn::Add(logit, bias));
}

// What to subtract from logits whose maximum this is: a row that has seen nothing has none, and -inf - (-inf) must not happen.
HWY_INLINE Vector FiniteMax(Vector max) {
  const Lanes d;
  return hn::IfThenZeroElse(hn::Eq(max, hn::Set(d, -kInfinity)), max);
}

// 1 / sum, or 0 for a row that has seen nothing: its output is 0.
inline float InverseSum(float sum) { return sum == 0 ? 0 : 1 / sum; }

// The log-sum-exp of one finished row, if it is asked for.
inline void StoreLogSumExp(const RowBlock& block, std::int64_t row, float max, float sum) {
  const AttentionParams& params = block.params;
  if (params.log_sum_exp == nullptr) return;
  params.log_sum_exp[block.sequence.lse_begin + block.Head(row) * params.lse_head_stride_elems + block.Query(row)] =
      sum == 0 ? -kInfinity : max + std::log(sum);
}

// The final output of one row: `output` [Dv] times `factor`, in the type asked for.
HWY_INLINE void StoreOutputRow(const RowBlock& block, std::int64_t row, const float* output, float factor) {
  const Lanes d;
  const AttentionShape& shape = block.params.shape;
  const std::int64_t dims = shape.value_head_dim;
  const std::int64_t element = block.QueryToken(row) * dims;
  for (std::int64_t dim = 0; dim < dims; dim += kLanes) {
    const Vector v = hn::Mul(LoadColumns(output + dim, dims - dim), hn::Set(d, factor));
    StoreColumnsAs(shape.output_data_type, v, block.params.output, element + dim, dims - dim);
  }
}

}  // namespace ridgeline::kernels::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RIDGELINE_KERNELS_ATTENTION_FLASH_LANES_INL_H_
