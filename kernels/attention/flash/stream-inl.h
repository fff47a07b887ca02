// Flash attention of a few rows over many keys (decode), for code compiled once per SIMD target (hence no ordinary include
// guard).
//
// Bound by memory: each key and value is read once, in its own type, straight into registers, for all rows that attend to it;
// nothing is packed. The heads of an item lie side by side, so it walks its keys token by token, all heads of a token in turn:
//
//   key [tokens, heads, D]   ──► scores [heads, rows, keys]   ──softmax──► probabilities
//   value [tokens, heads, Dv] ──────────────────────────────────────────► output [heads, rows, Dv], in the L1 cache
//
// Lanes are head dims in both products, and keys in the softmax.
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
#include "kernels/attention/flash/prefetch_cursor.h"
#include "kernels/attention/flash/row_block.h"
#include "kernels/attention/flash/schedule.h"
#include "kernels/attention/flash/token_rows.h"
#include "kernels/common/executor.h"
#include "kernels/common/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::attention::HWY_NAMESPACE {

inline constexpr std::int64_t kTokens = 4;  // keys, and values, that are read side by side

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

// How far the prefetching runs ahead of the reading. The processor's own prefetcher follows several tokens badly that are read
// side by side.
inline constexpr std::int64_t kPrefetchDistanceBytes = 16 << 10;

template <typename T>
class StreamAttention {
 public:
  // The rows of `block`, and the same rows of the next num_heads - 1 KV heads.
  StreamAttention(const RowBlock& block, std::int64_t num_heads, float* scratch)
      : block_(block),
        shape_(block_.params.shape),
        num_heads_(num_heads),
        query_stride_(RoundUp(shape_.head_dim, kMaxLanes)),
        keys_(TokenRows<T>::Keys(block.params, block.sequence, block.kv_head)),
        values_(TokenRows<T>::Values(block.params, block.sequence, block.kv_head)),
        key_share_bytes_(CeilDivide(shape_.head_dim * std::int64_t{sizeof(T)}, block.rows)),
        value_share_bytes_(CeilDivide(shape_.value_head_dim * std::int64_t{sizeof(T)}, block.rows)) {
    const StreamScratch layout = LayOutStreamScratch(shape_);
    query_ = scratch + layout.query;
    output_ = scratch + layout.output;
    max_ = scratch + layout.max;
    sum_ = scratch + layout.sum;
    scores_ = scratch + layout.scores;
    value_ = scratch + layout.value;
  }

  void Run(const Executor& executor) {
    ForEachRow([&](const RowBlock& head, std::int64_t row, std::int64_t slot) { Begin(head, row, slot); });
    const KeyRange keys = block_.RangeOfRows(0, block_.rows);
    PrefetchCursor<T> key_ahead = CursorAhead(keys_, keys, num_heads_ * shape_.head_dim);
    PrefetchCursor<T> value_ahead = CursorAhead(values_, keys, num_heads_ * shape_.value_head_dim);
    for (std::int64_t begin = keys.begin; begin < keys.end && !executor.cancelled(); begin += kStreamedKeys) {
      AttendBlock({begin, std::min(begin + kStreamedKeys, keys.end)}, key_ahead, value_ahead);
    }
    ForEachRow([&](const RowBlock& head, std::int64_t row, std::int64_t slot) { Finish(head, row, slot); });
  }

 private:
  // Where each token of a step lies. In place of tokens that would make the last kTokens complete, the last is there again.
  template <typename V>
  struct Rows {
    const V* at[kStreamedKeys];
  };

  static Rows<T> RowsOf(const TokenRows<T>& tokens, KeyRange keys) {
    Rows<T> rows;
    tokens.ForEachRun(keys, [&](const typename TokenRows<T>::Run& run, std::int64_t j) {
      for (std::int64_t k = 0; k < run.tokens; ++k) rows.at[j + k] = run.first + k * tokens.stride_elems();
    });
    std::fill(rows.at + keys.size(), rows.at + RoundUp(keys.size(), kTokens), rows.at[keys.size() - 1]);
    return rows;
  }

  // Over this item's heads of each token, from kPrefetchDistanceBytes on.
  static PrefetchCursor<T> CursorAhead(const TokenRows<T>& tokens, KeyRange keys, std::int64_t piece_elems) {
    const std::int64_t skipped = CeilDivide(kPrefetchDistanceBytes, piece_elems * std::int64_t{sizeof(T)});
    return PrefetchCursor<T>(tokens, {std::min(keys.begin + skipped, keys.end), keys.end}, piece_elems);
  }

  // Calls function(block of one head, row, its slot in the scratch arrays).
  template <typename Function>
  void ForEachRow(const Function& function) {
    for (std::int64_t h = 0; h < num_heads_; ++h) {
      const RowBlock head = block_.ForKvHead(block_.kv_head + h);
      for (std::int64_t row = 0; row < block_.rows; ++row) function(head, row, h * block_.rows + row);
    }
  }

  // Calls function(constant number of rows, head, first slot) for groups of 4, 2 and 1 rows of each head: what is read serves a
  // whole group.
  template <typename Function>
  HWY_INLINE void ForRowGroups(const Function& function) {
    for (std::int64_t h = 0; h < num_heads_; ++h) {
      std::int64_t slot = h * block_.rows;
      const std::int64_t end = slot + block_.rows;
      for (; slot + 4 <= end; slot += 4) function(std::integral_constant<int, 4>(), h, slot);
      for (; slot + 2 <= end; slot += 2) function(std::integral_constant<int, 2>(), h, slot);
      for (; slot < end; ++slot) function(std::integral_constant<int, 1>(), h, slot);
    }
  }

  // The sink takes part like a key whose value is 0.
  void Begin(const RowBlock& head, std::int64_t row, std::int64_t slot) {
    const Lanes d;
    const std::int64_t dims = shape_.head_dim;
    const T* from = static_cast<const T*>(block_.params.query) + head.QueryToken(row) * dims;
    float* to = query_ + slot * query_stride_;
    for (std::int64_t dim = 0; dim < dims; dim += kLanes) {
      hn::StoreU(hn::Mul(LoadColumns(from + dim, dims - dim), hn::Set(d, SplitScale(block_.params.scale).query)), d, to + dim);
    }
    std::fill_n(output_ + slot * shape_.value_head_dim, shape_.value_head_dim, 0.0f);
    max_[slot] = head.Sink(row);
    sum_[slot] = max_[slot] == -kInfinity ? 0 : 1;
  }

  // At most kStreamedKeys keys.
  void AttendBlock(KeyRange keys, PrefetchCursor<T>& key_ahead, PrefetchCursor<T>& value_ahead) {
    const std::int64_t dims = shape_.head_dim;
    const Rows<T> key_rows = RowsOf(keys_, keys);
    for (std::int64_t j = 0; j < keys.size(); j += kTokens) {
      ForRowGroups([&](auto rows, std::int64_t h, std::int64_t slot) HWY_ATTR {
        key_ahead.Advance(kTokens * rows * key_share_bytes_);
        Scores<rows>(key_rows.at + j, h * dims, slot, j);
      });
    }
    ForEachRow([&](const RowBlock& head, std::int64_t row, std::int64_t slot) {
      TransformScores(head, row, slot, keys);
      Softmax(slot, keys.size());
    });

    const KeyRange every = block_.RangeOfEveryRow(0, block_.rows);
    const bool none_hidden = block_.params.bias == nullptr && keys.begin >= every.begin && keys.end <= every.end;
    if (none_hidden) {
      AddValues(RowsOf(values_, keys), keys.size(), &value_ahead);
    } else {
      AddValuesWithHiddenKeys(keys);
    }
  }

  // A hidden key's value may be NaN: see AddNonFinite.
  void AddValuesWithHiddenKeys(KeyRange keys) {
    const std::int64_t dims = shape_.value_head_dim, tile_dims = num_heads_ * dims;
    const bool finite = LoadTile(values_, keys, tile_dims, value_);
    if (!finite) ZeroNonFinite(value_, keys.size() * tile_dims);
    Rows<float> tile_rows;
    for (std::int64_t j = 0; j < keys.size(); ++j) tile_rows.at[j] = value_ + j * tile_dims;
    AddValues(tile_rows, keys.size(), nullptr);
    if (finite) return;
    for (std::int64_t h = 0; h < num_heads_; ++h) {
      const std::int64_t slot = h * block_.rows;
      AddNonFinite<T>(block_.ForKvHead(block_.kv_head + h), 0, block_.rows, keys,
                      {scores_ + slot * kStreamedKeys, kStreamedKeys, 1}, {output_ + slot * dims, dims, 1});
    }
  }

  // Dot products of kRows rows with kTokens keys, whose head begins at element `head` of their rows.
  template <int kRows>
  HWY_INLINE void Scores(const T* const* keys, std::int64_t head, std::int64_t slot, std::int64_t j) {
    const Lanes d;
    const std::int64_t dims = shape_.head_dim;
    const T* key[kTokens];
    for (std::int64_t k = 0; k < kTokens; ++k) key[k] = keys[k] + head;
    Vector sum[kRows][kTokens];
    for (auto& sums : sum) {
      for (Vector& v : sums) v = hn::Zero(d);
    }
    const float* const query = query_ + slot * query_stride_;
    for (std::int64_t dim = 0; dim < dims; dim += kLanes) {
      Vector k_lanes[kTokens];
      HWY_UNROLL(4)
      for (std::int64_t k = 0; k < kTokens; ++k) k_lanes[k] = LoadColumns(key[k] + dim, dims - dim);
      HWY_UNROLL(4)
      for (std::int64_t r = 0; r < kRows; ++r) {
        const Vector q = hn::LoadU(d, query + r * query_stride_ + dim);
        HWY_UNROLL(4)
        for (std::int64_t k = 0; k < kTokens; ++k) sum[r][k] = hn::MulAdd(q, k_lanes[k], sum[r][k]);
      }
    }
    for (std::int64_t r = 0; r < kRows; ++r) StoreSums(sum[r], scores_ + (slot + r) * kStreamedKeys + j);
  }

  // From products to logits. The row is padded to whole vectors with -inf.
  void TransformScores(const RowBlock& head, std::int64_t row, std::int64_t slot, KeyRange keys) {
    const Lanes d;
    const AttentionParams& params = block_.params;
    float* const scores = scores_ + slot * kStreamedKeys;

    const LogitTransform transform(params);
    if (!transform.IsIdentity()) {
      const Vector slope = hn::Set(d, transform.has_alibi ? params.alibi_slopes[head.Head(row)] : 0);
      const Vector position = hn::Set(d, static_cast<float>(head.visible.Position(head.Query(row)) - keys.begin));
      for (std::int64_t j = 0; j < keys.size(); j += kLanes) {
        const Vector distance = hn::Abs(hn::Sub(position, hn::Iota(d, static_cast<float>(j))));
        hn::StoreU(transform(hn::LoadU(d, scores + j), slope, distance), d, scores + j);
      }
    }
    if (params.bias != nullptr) {
      const float* bias = head.Bias(row) + keys.begin;
      for (std::int64_t j = 0; j < keys.size(); j += kLanes) {
        const std::int64_t count = std::min(kLanes, keys.size() - j);
        const Vector added = count == kLanes ? hn::LoadU(d, bias + j) : LoadFloat32N(d, bias + j, count);
        hn::StoreU(AddBiasTo(hn::LoadU(d, scores + j), added), d, scores + j);
      }
    }
    const KeyRange seen = head.visible.OfQuery(head.Query(row));
    const std::int64_t first = std::clamp(seen.begin, keys.begin, keys.end) - keys.begin;
    const std::int64_t last = std::clamp(seen.end, keys.begin, keys.end) - keys.begin;
    std::fill(scores, scores + first, -kInfinity);
    std::fill(scores + last, scores + RoundUp(keys.size(), kLanes), -kInfinity);
  }

  // Replaces logits by exp(logit - max), and scales down by as much as max has risen what was summed up before.
  void Softmax(std::int64_t slot, std::int64_t num_keys) {
    const Lanes d;
    float* const scores = scores_ + slot * kStreamedKeys;
    Vector max = hn::Set(d, max_[slot]);
    for (std::int64_t j = 0; j < num_keys; j += kLanes) max = hn::Max(max, hn::LoadU(d, scores + j));
    max = hn::MaxOfLanes(d, max);
    const Vector subtracted = FiniteMax(max);

    Vector sum = hn::Zero(d);
    for (std::int64_t j = 0; j < num_keys; j += kLanes) {
      const Vector p = ExpOfNonPositive(d, hn::Sub(hn::LoadU(d, scores + j), subtracted));
      hn::StoreU(p, d, scores + j);
      sum = hn::Add(sum, p);
    }
    const Vector rescale = ExpOfNonPositive(d, hn::Sub(hn::Set(d, max_[slot]), subtracted));
    sum_[slot] = sum_[slot] * hn::GetLane(rescale) + hn::GetLane(hn::SumOfLanes(d, sum));
    if (hn::GetLane(max) == max_[slot]) return;
    max_[slot] = hn::GetLane(max);
    const std::int64_t dims = shape_.value_head_dim;
    float* const output = output_ + slot * dims;
    for (std::int64_t dim = 0; dim < dims; dim += kLanes) {
      StoreColumns(hn::Mul(LoadColumns(output + dim, dims - dim), rescale), output + dim, dims - dim);
    }
  }

  // output += P · values, for all rows of all heads; each row of values [heads, Dv]. `ahead` is null where the values are in a
  // cache.
  template <typename V>
  HWY_INLINE void AddValues(const Rows<V>& values, std::int64_t num_keys, PrefetchCursor<T>* ahead) {
    const std::int64_t dims = shape_.value_head_dim;
    std::int64_t j = 0;
    for (; j + kTokens <= num_keys; j += kTokens) {
      ForRowGroups([&](auto rows, std::int64_t h, std::int64_t slot) HWY_ATTR {
        if (ahead != nullptr) ahead->Advance(kTokens * rows * value_share_bytes_);
        AddTokens<rows, kTokens>(values.at + j, h * dims, slot, j);
      });
    }
    for (; j < num_keys; ++j) {
      ForRowGroups([&](auto rows, std::int64_t h, std::int64_t slot)
                       HWY_ATTR { AddTokens<rows, 1>(values.at + j, h * dims, slot, j); });
    }
  }

  template <int kRows, std::int64_t kCount, typename V>
  HWY_INLINE void AddTokens(const V* const* values, std::int64_t head, std::int64_t slot, std::int64_t j) {
    const Lanes d;
    const std::int64_t dims = shape_.value_head_dim;
    const V* value[kCount];
    for (std::int64_t k = 0; k < kCount; ++k) value[k] = values[k] + head;
    Vector p[kRows][kCount];
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t k = 0; k < kCount; ++k) p[r][k] = hn::Set(d, scores_[(slot + r) * kStreamedKeys + j + k]);
    }
    float* const output = output_ + slot * dims;
    for (std::int64_t dim = 0; dim < dims; dim += kLanes) {
      const std::int64_t left = dims - dim;
      Vector v_lanes[kCount];
      HWY_UNROLL(4)
      for (std::int64_t k = 0; k < kCount; ++k) v_lanes[k] = LoadColumns(value[k] + dim, left);
      HWY_UNROLL(4)
      for (std::int64_t r = 0; r < kRows; ++r) {
        float* const to = output + r * dims + dim;
        Vector sum = LoadColumns(to, left);
        HWY_UNROLL(4)
        for (std::int64_t k = 0; k < kCount; ++k) sum = hn::MulAdd(p[r][k], v_lanes[k], sum);
        StoreColumns(sum, to, left);
      }
    }
  }

  void Finish(const RowBlock& head, std::int64_t row, std::int64_t slot) {
    const std::int64_t dims = shape_.value_head_dim;
    const float* from = output_ + slot * dims;
    if (head.partial.output != nullptr) {
      std::copy_n(from, dims, head.partial.output + row * dims);
      head.partial.max[row] = max_[slot];
      head.partial.sum[row] = sum_[slot];
      return;
    }
    StoreLogSumExp(head, row, max_[slot], sum_[slot]);
    StoreOutputRow(head, row, from, InverseSum(sum_[slot]));
  }

  const RowBlock& block_;  // of the first head
  const AttentionShape& shape_;
  const std::int64_t num_heads_;
  const std::int64_t query_stride_;
  const TokenRows<T> keys_;
  const TokenRows<T> values_;
  const std::int64_t key_share_bytes_;  // of one head's key: what to prefetch for each row that attends to it
  const std::int64_t value_share_bytes_;
  float* query_;
  float* output_;
  float* max_;
  float* sum_;
  float* scores_;
  float* value_;
};

}  // namespace ridgeline::kernels::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RIDGELINE_KERNELS_ATTENTION_FLASH_STREAM_INL_H_
