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
#include "kernels/attention/flash/row_block.h"
#include "kernels/attention/flash/row_window.h"
#include "kernels/attention/flash/schedule.h"
#include "kernels/attention/flash/stream_products-inl.h"
#include "kernels/attention/flash/token_rows.h"
#include "kernels/common/executor.h"
#include "kernels/common/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::attention::HWY_NAMESPACE {

template <typename T>
class StreamAttention {
 public:
  // The rows of `block`, and the same rows of the next num_heads - 1 KV heads.
  StreamAttention(const RowBlock& block, std::int64_t num_heads, float* scratch)
      : block_(block),
        shape_(block_.params.shape),
        num_heads_(num_heads),
        keys_(TokenRows<T>::Keys(block.params, block.sequence, block.kv_head)),
        values_(TokenRows<T>::Values(block.params, block.sequence, block.kv_head)) {
    const StreamScratch layout = LayOutStreamScratch(shape_);
    query_ = {scratch + layout.query, RoundUp(shape_.head_dim, kMaxLanes)};
    output_ = {scratch + layout.output, RoundUp(shape_.value_head_dim, kMaxLanes)};
    max_ = scratch + layout.max;
    sum_ = scratch + layout.sum;
    scores_ = {scratch + layout.scores, kStreamedKeys};
    value_tile_ = reinterpret_cast<T*>(scratch + layout.value);
  }

  void Run(const Executor& executor) {
    ForEachRow([&](const RowBlock& head, std::int64_t row, std::int64_t slot) { Begin(head, row, slot); });
    const KeyRange keys = block_.RangeOfRows(0, block_.rows);
    RowWindow<T> key_window(keys_, keys, num_heads_, shape_.head_dim);
    RowWindow<T> value_window(values_, keys, num_heads_, shape_.value_head_dim);
    for (std::int64_t begin = keys.begin; begin < keys.end && !executor.cancelled(); begin += kStreamedKeys) {
      AttendStep({begin, std::min(begin + kStreamedKeys, keys.end)}, key_window, value_window);
      key_window.Advance();
      value_window.Advance();
    }
    ForEachRow([&](const RowBlock& head, std::int64_t row, std::int64_t slot) { Finish(head, row, slot); });
  }

 private:
  // Calls function(block of one head, row, its slot in the scratch arrays).
  template <typename Function>
  void ForEachRow(const Function& function) {
    for (std::int64_t h = 0; h < num_heads_; ++h) {
      const RowBlock head = block_.ForKvHead(block_.kv_head + h);
      for (std::int64_t row = 0; row < block_.rows; ++row) function(head, row, h * block_.rows + row);
    }
  }

  // Calls function(constant number of rows, first slot) for groups of 4, 2 and 1 rows of head `h`: what is read serves a whole
  // group.
  template <typename Function>
  HWY_INLINE void ForRowGroups(std::int64_t h, const Function& function) {
    std::int64_t slot = h * block_.rows;
    const std::int64_t end = slot + block_.rows;
    for (; slot + 4 <= end; slot += 4) function(std::integral_constant<int, 4>(), slot);
    for (; slot + 2 <= end; slot += 2) function(std::integral_constant<int, 2>(), slot);
    for (; slot < end; ++slot) function(std::integral_constant<int, 1>(), slot);
  }

  // The sink takes part like a key whose value is 0.
  void Begin(const RowBlock& head, std::int64_t row, std::int64_t slot) {
    const Lanes d;
    const Vector scale = hn::Set(d, SplitScale(block_.params.scale).query);
    const T* from = static_cast<const T*>(block_.params.query) + head.QueryToken(row) * shape_.head_dim;
    float* const to = query_[slot];
    ForEachVector<1>(
        &from, 0, shape_.head_dim, [] {},
        [&](const Vector* q, std::int64_t dim) HWY_ATTR { hn::StoreU(hn::Mul(*q, scale), d, to + dim); });
    std::fill_n(output_[slot], output_.stride, 0.0f);
    max_[slot] = head.Sink(row);
    sum_[slot] = max_[slot] == -kInfinity ? 0 : 1;
  }

  // At most kStreamedKeys keys.
  void AttendStep(KeyRange keys, RowWindow<T>& key_window, RowWindow<T>& value_window) {
    AddKeys(key_window, keys.size());
    ForEachRow([&](const RowBlock& head, std::int64_t row, std::int64_t slot) {
      TransformScores(head, row, slot, keys);
      Softmax(slot, keys.size());
    });

    const KeyRange every = block_.RangeOfEveryRow(0, block_.rows);
    const bool none_hidden = block_.params.bias == nullptr && keys.begin >= every.begin && keys.end <= every.end;
    if (none_hidden) {
      AddValuesOf(value_window.rows(), keys.size(), value_window);
    } else {
      AddValuesWithHiddenKeys(keys, value_window);
    }
  }

  // Requests as much as kRows of a head's rows read, so that all its rows together request what they read. Either spread over
  // the product's steps, by what is returned for them to call; or at once, where products of 16-bit types with many rows leave
  // no registers for it, and are not bound by memory alone.
  template <int kRows>
  auto Requests(RowWindow<T>& window, std::int64_t dims) const {
    constexpr std::int64_t kRowBytes = kTokens * kRows * std::int64_t{sizeof(T)};
    if constexpr (kRows <= sizeof(T)) {
      const std::int64_t lines = CeilDivide(kRowBytes * kStepElems<T>, kLineBytes * block_.rows);
      return [&window, lines] { window.RequestAhead(lines); };
    } else {
      window.RequestAhead(CeilDivide(kRowBytes * dims, kLineBytes * block_.rows));
      return [] {};
    }
  }

  // Scores of all rows of all heads.
  void AddKeys(RowWindow<T>& window, std::int64_t num_keys) {
    const std::int64_t dims = shape_.head_dim;
    for (std::int64_t j = 0; j < num_keys; j += kTokens) {
      for (std::int64_t h = 0; h < num_heads_; ++h) {
        ForRowGroups(h, [&](auto rows, std::int64_t slot) HWY_ATTR {
          MultiplyKeys<rows>(window.rows() + j, h * dims, dims, query_.From(slot), scores_.From(slot, j),
                             Requests<rows>(window, dims));
        });
      }
    }
  }

  // output += P · values, for all rows of all heads; each row of values [heads, Dv].
  void AddValuesOf(const T* const* values, std::int64_t num_keys, RowWindow<T>& window) {
    const std::int64_t dims = shape_.value_head_dim;
    const auto add = [&](auto count, std::int64_t h, std::int64_t j) HWY_ATTR {
      ForRowGroups(h, [&](auto rows, std::int64_t slot) HWY_ATTR {
        AddValues<rows, count>(values + j, h * dims, dims, scores_.From(slot, j), output_.From(slot),
                               Requests<rows>(window, dims));
      });
    };
    std::int64_t j = 0;
    for (; j + kTokens <= num_keys; j += kTokens) {
      for (std::int64_t h = 0; h < num_heads_; ++h) add(std::integral_constant<std::int64_t, kTokens>(), h, j);
    }
    for (; j < num_keys; ++j) {
      for (std::int64_t h = 0; h < num_heads_; ++h) add(std::integral_constant<std::int64_t, 1>(), h, j);
    }
  }

  // A hidden key's value may be NaN: see AddNonFinite.
  void AddValuesWithHiddenKeys(KeyRange keys, RowWindow<T>& window) {
    const std::int64_t dims = shape_.value_head_dim, tile_dims = num_heads_ * dims;
    const bool finite = LoadTile(values_, keys, tile_dims, value_tile_);
    if (!finite) ZeroNonFinite(value_tile_, keys.size() * tile_dims);
    const T* tile_rows[kStreamedKeys];
    for (std::int64_t j = 0; j < kStreamedKeys; ++j) tile_rows[j] = value_tile_ + j * tile_dims;
    AddValuesOf(tile_rows, keys.size(), window);
    if (finite) return;
    for (std::int64_t h = 0; h < num_heads_; ++h) {
      const std::int64_t slot = h * block_.rows;
      AddNonFinite<T>(block_.ForKvHead(block_.kv_head + h), 0, block_.rows, keys, Strided{scores_[slot], kStreamedKeys, 1},
                      [&](std::int64_t row, std::int64_t dim) -> float& { return output_[slot + row][PlaceOf<T>(dim, dims)]; });
    }
  }

  // From products to logits. The row is padded to whole vectors with -inf.
  void TransformScores(const RowBlock& head, std::int64_t row, std::int64_t slot, KeyRange keys) {
    const Lanes d;
    const AttentionParams& params = block_.params;
    float* const scores = scores_[slot];

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
    float* const scores = scores_[slot];
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
    float* const output = output_[slot];
    for (std::int64_t dim = 0; dim < shape_.value_head_dim; dim += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, output + dim), rescale), d, output + dim);
    }
  }

  void Finish(const RowBlock& head, std::int64_t row, std::int64_t slot) {
    const std::int64_t dims = shape_.value_head_dim;
    HWY_ALIGN float output[RoundUp(kMaxHeadDim, kMaxLanes)];
    for (std::int64_t dim = 0; dim < dims; ++dim) output[dim] = output_[slot][PlaceOf<T>(dim, dims)];
    if (head.partial.output != nullptr) {
      std::copy_n(output, dims, head.partial.output + row * dims);
      head.partial.max[row] = max_[slot];
      head.partial.sum[row] = sum_[slot];
      return;
    }
    StoreLogSumExp(head, row, max_[slot], sum_[slot]);
    StoreOutputRow(head, row, output, InverseSum(sum_[slot]));
  }

  const RowBlock& block_;  // of the first head
  const AttentionShape& shape_;
  const std::int64_t num_heads_;
  const TokenRows<T> keys_;
  const TokenRows<T> values_;
  ScratchRows query_;
  ScratchRows output_;
  float* max_;
  float* sum_;
  ScratchRows scores_;
  T* value_tile_;
};

}  // namespace ridgeline::kernels::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RIDGELINE_KERNELS_ATTENTION_FLASH_STREAM_INL_H_
