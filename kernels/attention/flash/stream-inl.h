// Flash attention of a few rows over many keys (decode), for code compiled once per SIMD target (hence no ordinary include
// guard).
//
// Bound by memory: each key and value is read once, in its own type, straight into registers, for all rows of the block;
// nothing is packed. Lanes are head dims in both products and keys in the softmax.
#if defined(RIDGELINE_KERNELS_ATTENTION_FLASH_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_KERNELS_ATTENTION_FLASH_STREAM_INL_H_
#undef RIDGELINE_KERNELS_ATTENTION_FLASH_STREAM_INL_H_
#else
#define RIDGELINE_KERNELS_ATTENTION_FLASH_STREAM_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/attention/flash/lanes-inl.h"
#include "kernels/attention/flash/row_block.h"
#include "kernels/attention/flash/schedule.h"
#include "kernels/common/executor.h"
#include "kernels/common/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::attention::HWY_NAMESPACE {

inline constexpr std::int64_t kDotKeys = 4;  // keys whose dot products are summed across lanes together

// Lane k of the result: the sum of all lanes of v[k], in a vector of kDotKeys lanes stored at `to`.
HWY_INLINE void StoreSums(const Vector* v, float* to) {
  const Lanes d;
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t k = 0; k < kDotKeys; ++k) hn::StoreU(v[k], d, to + k);
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

template <typename T>
class StreamAttention {
 public:
  StreamAttention(const RowBlock& block, const AttentionPlan& plan, float* scratch)
      : block_(block),
        shape_(block.params.shape),
        key_block_(plan.key_block),
        query_stride_(RoundUp(shape_.head_dim, kMaxLanes)),
        key_stride_(shape_.kv_heads * shape_.head_dim),
        value_stride_(shape_.kv_heads * shape_.value_head_dim) {
    const StreamScratch layout = LayOutStreamScratch(shape_, plan.key_block);
    query_ = scratch + layout.query;
    output_ = scratch + layout.output;
    scores_ = scratch + layout.scores;
    value_ = scratch + layout.value;
  }

  void Run(const Executor& executor) {
    for (std::int64_t row = 0; row < block_.rows; ++row) Begin(row);
    const KeyRange keys = block_.RangeOfRows(0, block_.rows);
    for (std::int64_t begin = keys.begin; begin < keys.end && !executor.cancelled(); begin += key_block_) {
      AttendBlock({begin, std::min(begin + key_block_, keys.end)});
    }
    for (std::int64_t row = 0; row < block_.rows; ++row) Finish(row);
  }

 private:
  // The sink takes part like a key whose value is 0.
  void Begin(std::int64_t row) {
    const Lanes d;
    const std::int64_t dims = shape_.head_dim;
    const T* from = static_cast<const T*>(block_.params.query) + block_.QueryToken(row) * dims;
    float* to = query_ + row * query_stride_;
    for (std::int64_t dim = 0; dim < dims; dim += kLanes) {
      hn::StoreU(hn::Mul(LoadColumns(from + dim, dims - dim), hn::Set(d, block_.params.scale)), d, to + dim);
    }
    std::fill_n(output_ + row * shape_.value_head_dim, shape_.value_head_dim, 0.0f);
    max_[row] = block_.Sink(row);
    sum_[row] = max_[row] == -kInfinity ? 0 : 1;
  }

  void AttendBlock(KeyRange keys) {
    const T* key = static_cast<const T*>(block_.params.key) + block_.KeyToken(keys.begin) * shape_.head_dim;
    const T* value = static_cast<const T*>(block_.params.value) + block_.KeyToken(keys.begin) * shape_.value_head_dim;
    ForRowGroups([&](auto rows, std::int64_t row) HWY_ATTR { Scores<rows>(key, keys.size(), row); });
    for (std::int64_t row = 0; row < block_.rows; ++row) {
      TransformScores(row, keys);
      SoftmaxRow(row, keys.size());
    }

    const KeyRange every = block_.RangeOfEveryRow(0, block_.rows);
    const bool none_hidden = block_.params.bias == nullptr && keys.begin >= every.begin && keys.end <= every.end;
    if (none_hidden) return AddValues(value, value_stride_, keys.size());
    // A hidden key's value may be NaN: see AddNonFinite.
    const bool finite = LoadTile(value, value_stride_, keys.size(), shape_.value_head_dim, value_);
    if (!finite) ZeroNonFinite(value_, keys.size() * shape_.value_head_dim);
    AddValues(value_, shape_.value_head_dim, keys.size());
    if (!finite) {
      AddNonFinite(block_, 0, block_.rows, keys, value, value_stride_, {scores_, key_block_, 1},
                   {output_, shape_.value_head_dim, 1});
    }
  }

  // Calls function(constant number of rows, first row) for groups of 4, 2 and 1 rows: what is read serves a whole group.
  template <typename Function>
  HWY_INLINE void ForRowGroups(const Function& function) {
    std::int64_t row = 0;
    for (; row + 4 <= block_.rows; row += 4) function(std::integral_constant<int, 4>(), row);
    for (; row + 2 <= block_.rows; row += 2) function(std::integral_constant<int, 2>(), row);
    for (; row < block_.rows; ++row) function(std::integral_constant<int, 1>(), row);
  }

  // Dot products of kRows rows with all keys of the block.
  template <int kRows>
  HWY_INLINE void Scores(const T* keys, std::int64_t num_keys, std::int64_t row) {
    const Lanes d;
    const std::int64_t dims = shape_.head_dim;
    for (std::int64_t j = 0; j < num_keys; j += kDotKeys) {
      const T* key[kDotKeys];  // beyond the last key: the last again, to be masked later
      for (std::int64_t k = 0; k < kDotKeys; ++k) key[k] = keys + std::min(j + k, num_keys - 1) * key_stride_;
      Vector sum[kRows][kDotKeys];
      for (auto& sums : sum) {
        for (Vector& v : sums) v = hn::Zero(d);
      }
      for (std::int64_t dim = 0; dim < dims; dim += kLanes) {
        Vector k_lanes[kDotKeys];
        HWY_UNROLL(4)
        for (std::int64_t k = 0; k < kDotKeys; ++k) k_lanes[k] = LoadColumns(key[k] + dim, dims - dim);
        HWY_UNROLL(4)
        for (std::int64_t r = 0; r < kRows; ++r) {
          const Vector q = hn::LoadU(d, query_ + (row + r) * query_stride_ + dim);
          HWY_UNROLL(4)
          for (std::int64_t k = 0; k < kDotKeys; ++k) sum[r][k] = hn::MulAdd(q, k_lanes[k], sum[r][k]);
        }
      }
      for (std::int64_t r = 0; r < kRows; ++r) StoreSums(sum[r], scores_ + (row + r) * key_block_ + j);
    }
  }

  // From scaled products to logits. The row is padded to whole vectors with -inf.
  void TransformScores(std::int64_t row, KeyRange keys) {
    const Lanes d;
    const AttentionParams& params = block_.params;
    float* const scores = scores_ + row * key_block_;
    const std::int64_t padded_keys = RoundUp(keys.size(), kLanes);
    std::fill(scores + keys.size(), scores + padded_keys, -kInfinity);

    const LogitTransform transform = {params.logit_soft_cap, params.alibi_slopes != nullptr};
    if (!transform.IsIdentity()) {
      const Vector slope = hn::Set(d, transform.has_alibi ? params.alibi_slopes[block_.Head(row)] : 0);
      const Vector position = hn::Set(d, static_cast<float>(block_.visible.Position(block_.Query(row)) - keys.begin));
      for (std::int64_t j = 0; j < keys.size(); j += kLanes) {
        const Vector distance = hn::Abs(hn::Sub(position, hn::Iota(d, static_cast<float>(j))));
        hn::StoreU(transform(hn::LoadU(d, scores + j), slope, distance), d, scores + j);
      }
    }
    if (params.bias != nullptr) {
      const float* bias = block_.Bias(row) + keys.begin;
      for (std::int64_t j = 0; j < keys.size(); j += kLanes) {
        const std::int64_t count = std::min(kLanes, keys.size() - j);
        const Vector added = count == kLanes ? hn::LoadU(d, bias + j) : LoadFloat32N(d, bias + j, count);
        hn::StoreU(AddBiasTo(hn::LoadU(d, scores + j), added), d, scores + j);
      }
    }
    const KeyRange seen = block_.visible.OfQuery(block_.Query(row));
    std::fill(scores, scores + (std::clamp(seen.begin, keys.begin, keys.end) - keys.begin), -kInfinity);
    std::fill(scores + (std::clamp(seen.end, keys.begin, keys.end) - keys.begin), scores + padded_keys, -kInfinity);
  }

  void SoftmaxRow(std::int64_t row, std::int64_t num_keys) {
    const Lanes d;
    float* const scores = scores_ + row * key_block_;
    Vector max = hn::Set(d, max_[row]);
    for (std::int64_t j = 0; j < num_keys; j += kLanes) max = hn::Max(max, hn::LoadU(d, scores + j));
    max = hn::MaxOfLanes(d, max);
    const Vector subtracted = FiniteMax(max);

    Vector sum = hn::Zero(d);
    for (std::int64_t j = 0; j < num_keys; j += kLanes) {
      const Vector p = ExpOfNonPositive(d, hn::Sub(hn::LoadU(d, scores + j), subtracted));
      hn::StoreU(p, d, scores + j);
      sum = hn::Add(sum, p);
    }
    rescale_[row] = hn::GetLane(ExpOfNonPositive(d, hn::Sub(hn::Set(d, max_[row]), subtracted)));
    max_[row] = hn::GetLane(max);
    sum_[row] = sum_[row] * rescale_[row] + hn::GetLane(hn::SumOfLanes(d, sum));
  }

  // output = output * rescale + P · values, for all rows.
  template <typename V>
  HWY_INLINE void AddValues(const V* values, std::int64_t stride, std::int64_t num_keys) {
    ForRowGroups([&](auto rows, std::int64_t row) HWY_ATTR {
      // As many columns at a time as keep 16 sums in registers, or 8 where there is one row.
      constexpr std::int64_t kColumns = rows == 4 ? 4 : 8;
      std::int64_t dim = 0;
      for (; dim + kColumns * kLanes <= shape_.value_head_dim; dim += kColumns * kLanes) {
        AddColumns<rows, kColumns>(values + dim, stride, num_keys, row, dim);
      }
      for (; dim + 2 * kLanes <= shape_.value_head_dim; dim += 2 * kLanes) {
        AddColumns<rows, 2>(values + dim, stride, num_keys, row, dim);
      }
      for (; dim < shape_.value_head_dim; dim += kLanes) AddColumns<rows, 1>(values + dim, stride, num_keys, row, dim);
    });
  }

  template <int kRows, std::int64_t kColumns, typename V>
  HWY_INLINE void AddColumns(const V* values, std::int64_t stride, std::int64_t num_keys, std::int64_t row, std::int64_t dim) {
    const Lanes d;
    // Only a single column of vectors can be the row's last, and then half full.
    const std::int64_t columns_left = kColumns > 1 ? kColumns * kLanes : shape_.value_head_dim - dim;
    Vector sum[kRows][kColumns];
    for (auto& sums : sum) {
      for (Vector& v : sums) v = hn::Zero(d);
    }
    const float* p = scores_ + row * key_block_;
    for (std::int64_t j = 0; j < num_keys; ++j, values += stride) {
      Vector v_lanes[kColumns];
      HWY_UNROLL(8)
      for (std::int64_t c = 0; c < kColumns; ++c) v_lanes[c] = LoadColumns(values + c * kLanes, columns_left - c * kLanes);
      HWY_UNROLL(4)
      for (std::int64_t r = 0; r < kRows; ++r) {
        const Vector probability = hn::Set(d, p[r * key_block_ + j]);
        HWY_UNROLL(8)
        for (std::int64_t c = 0; c < kColumns; ++c) sum[r][c] = hn::MulAdd(probability, v_lanes[c], sum[r][c]);
      }
    }
    for (std::int64_t r = 0; r < kRows; ++r) {
      float* to = output_ + (row + r) * shape_.value_head_dim + dim;
      const Vector rescale = hn::Set(d, rescale_[row + r]);
      for (std::int64_t c = 0; c < kColumns; ++c) {
        const std::int64_t left = columns_left - c * kLanes;
        StoreColumns(hn::MulAdd(LoadColumns(to + c * kLanes, left), rescale, sum[r][c]), to + c * kLanes, left);
      }
    }
  }

  void Finish(std::int64_t row) {
    const std::int64_t dims = shape_.value_head_dim;
    const float* from = output_ + row * dims;
    if (block_.partial.output != nullptr) {
      std::copy_n(from, dims, block_.partial.output + row * dims);
      block_.partial.max[row] = max_[row];
      block_.partial.sum[row] = sum_[row];
      return;
    }
    StoreLogSumExp(block_, row, max_[row], sum_[row]);
    StoreOutputRow(block_, row, from, InverseSum(sum_[row]));
  }

  const RowBlock& block_;
  const AttentionShape& shape_;
  const std::int64_t key_block_;
  const std::int64_t query_stride_;
  const std::int64_t key_stride_;
  const std::int64_t value_stride_;
  float* query_;
  float* output_;
  float* scores_;
  float* value_;
  float max_[kMaxStreamedRows];
  float sum_[kMaxStreamedRows];
  float rescale_[kMaxStreamedRows];  // of the block in progress
};

}  // namespace ridgeline::kernels::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RIDGELINE_KERNELS_ATTENTION_FLASH_STREAM_INL_H_
