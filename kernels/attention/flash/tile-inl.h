// Flash attention of a block of many rows, for code compiled once per SIMD target (hence no ordinary include guard).
//
// Everything is transposed: lanes are query rows. So a panel of rows, up to three vectors wide, is packed once, while keys and
// values are only ever broadcast element by element and keep their layout; the softmax works lane by lane, without a sum across
// lanes; and both products are the one of simd_multiply-inl.h.
//
//   K tile [keys, D]    ▪──► S  = K · Qᵀ   [keys, panel rows]      Q packed as [D, panel rows]
//                            P  = exp(S - max), max and sum per lane
//   V tile [keys, Dv]   ▪──► Oᵀ = Oᵀ * exp(old max - max) + Vᵀ · P  [Dv, panel rows]
#if defined(RIDGELINE_KERNELS_ATTENTION_FLASH_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_KERNELS_ATTENTION_FLASH_TILE_INL_H_
#undef RIDGELINE_KERNELS_ATTENTION_FLASH_TILE_INL_H_
#else
#define RIDGELINE_KERNELS_ATTENTION_FLASH_TILE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/attention/flash/lanes-inl.h"
#include "kernels/attention/flash/prefetch_cursor.h"
#include "kernels/attention/flash/row_block.h"
#include "kernels/attention/flash/schedule.h"
#include "kernels/attention/flash/token_rows.h"
#include "kernels/common/executor.h"
#include "kernels/common/simd_math-inl.h"
#include "kernels/common/simd_multiply-inl.h"
#include "kernels/common/simd_transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::attention::HWY_NAMESPACE {

static_assert(kTileRows <= TileScratch::kKeyPadding, "the last tile of keys reads into the padding");
static_assert(kTileVectors * kLanes <= TileScratch::kPanelRows, "a panel's scores fit the scratch array");

template <typename T>
class TileAttention {
 public:
  TileAttention(const RowBlock& block, const AttentionPlan& plan, float* scratch)
      : block_(block),
        shape_(block.params.shape),
        keys_(TokenRows<T>::Keys(block.params, block.sequence, block.kv_head)),
        values_(TokenRows<T>::Values(block.params, block.sequence, block.kv_head)),
        key_block_(plan.key_block),
        num_vectors_(CeilDivide(block.rows, kLanes)),
        num_panels_(CeilDivide(num_vectors_, kTileVectors)) {
    const TileScratch layout = LayOutTileScratch(shape_, plan.query_block, plan.key_block);
    query_ = scratch + layout.query;
    output_ = scratch + layout.output;
    max_ = scratch + layout.max;
    sum_ = scratch + layout.sum;
    scores_ = scratch + layout.scores;
    key_ = scratch + layout.key;
    value_ = scratch + layout.value;
  }

  void Run(const Executor& executor) {
    for (std::int64_t p = 0; p < num_panels_; ++p) Begin(PanelAt(p));
    const KeyRange keys = block_.RangeOfRows(0, block_.rows);
    for (std::int64_t begin = keys.begin; begin < keys.end && !executor.cancelled(); begin += key_block_) {
      const std::int64_t end = std::min(begin + key_block_, keys.end);
      AttendBlock({begin, end}, {end, std::min(end + key_block_, keys.end)});
    }
    for (std::int64_t p = 0; p < num_panels_; ++p) Finish(PanelAt(p));
  }

 private:
  // Up to kTileVectors vectors of the block's rows. Lanes beyond the last row repeat it and are not stored.
  struct Panel {
    std::int64_t row_begin;
    std::int64_t row_end;  // valid rows
    std::int64_t vectors;
    std::int64_t stride;  // lanes of all vectors
    float* query;         // [D, stride]
    float* output;        // [Dv, stride]
    float* max;           // [stride], the running maximum of the logits
    float* sum;           // [stride], of exp(logit - max)
  };

  // Vectors spread evenly over the panels: 4 as 2 + 2, not as 3 + 1.
  Panel PanelAt(std::int64_t p) const {
    const std::int64_t first = num_vectors_ * p / num_panels_, last = num_vectors_ * (p + 1) / num_panels_;
    const std::int64_t row_begin = first * kLanes;
    return {.row_begin = row_begin,
            .row_end = std::min(last * kLanes, block_.rows),
            .vectors = last - first,
            .stride = (last - first) * kLanes,
            .query = query_ + row_begin * shape_.head_dim,
            .output = output_ + row_begin * shape_.value_head_dim,
            .max = max_ + row_begin,
            .sum = sum_ + row_begin};
  }

  std::int64_t RowOfLane(const Panel& panel, std::int64_t lane) const {
    return std::min(panel.row_begin + lane, panel.row_end - 1);
  }

  // The sink takes part like a key whose value is 0: it is the softmax's first maximum, and its exponential of 1 the first sum.
  void Begin(const Panel& panel) {
    PackQuery(panel);
    std::fill_n(panel.output, shape_.value_head_dim * panel.stride, 0.0f);
    for (std::int64_t lane = 0; lane < panel.stride; ++lane) {
      panel.max[lane] = block_.Sink(RowOfLane(panel, lane));
      panel.sum[lane] = panel.max[lane] == -kInfinity ? 0 : 1;
    }
  }

  void PackQuery(const Panel& panel) {
    const Lanes d;
    const Vector scale = hn::Set(d, SplitScale(block_.params.scale).query);
    const std::int64_t dims = shape_.head_dim;
    for (std::int64_t v = 0; v < panel.vectors; ++v) {
      const T* rows[kLanes];
      for (std::int64_t i = 0; i < kLanes; ++i) {
        rows[i] = static_cast<const T*>(block_.params.query) + block_.QueryToken(RowOfLane(panel, v * kLanes + i)) * dims;
      }
      for (std::int64_t dim = 0; dim < dims; dim += kLanes) {
        Vector m[kLanes];
        for (std::int64_t i = 0; i < kLanes; ++i) m[i] = hn::Mul(scale, LoadColumns(rows[i] + dim, dims - dim));
        Transpose(d, m);
        float* to = panel.query + dim * panel.stride + v * kLanes;
        for (std::int64_t i = 0; i < std::min(kLanes, dims - dim); ++i) hn::StoreU(m[i], d, to + i * panel.stride);
      }
    }
  }

  // Requests keys and values of the next block, a few lines between the tiles of the products.
  class NextBlock {
   public:
    NextBlock(const TileAttention& attention, KeyRange keys)
        : key_(attention.keys_, keys, attention.shape_.head_dim),
          value_(attention.values_, keys, attention.shape_.value_head_dim) {
      const std::int64_t rows = attention.key_block_ + attention.shape_.value_head_dim;
      const std::int64_t tiles = attention.num_panels_ * CeilDivide(rows, kTileRows);
      const std::int64_t column_bytes = keys.size() * std::int64_t{sizeof(T)};
      key_step_bytes_ = CeilDivide(column_bytes * attention.shape_.head_dim, tiles);
      value_step_bytes_ = CeilDivide(column_bytes * attention.shape_.value_head_dim, tiles);
    }

    void Advance() {
      key_.Advance(key_step_bytes_);
      value_.Advance(value_step_bytes_);
    }

   private:
    PrefetchCursor<T> key_;
    PrefetchCursor<T> value_;
    std::int64_t key_step_bytes_;
    std::int64_t value_step_bytes_;
  };

  // All panels attend to `keys`; `next` follow.
  void AttendBlock(KeyRange keys, KeyRange next) {
    const std::int64_t dims = shape_.head_dim, value_dims = shape_.value_head_dim;
    LoadTile(keys_, keys, dims, key_);
    std::fill_n(key_ + keys.size() * dims, TileScratch::kKeyPadding * dims, 0.0f);
    const bool finite = LoadTile(values_, keys, value_dims, value_);
    if (!finite) ZeroNonFinite(value_, keys.size() * value_dims);

    NextBlock next_block(*this, next);
    for (std::int64_t p = 0; p < num_panels_; ++p) {
      const Panel panel = PanelAt(p);
      const KeyRange range = block_.RangeOfRows(panel.row_begin, panel.row_end);
      const KeyRange seen = {std::max(keys.begin, range.begin), std::min(keys.end, range.end)};
      if (seen.begin >= seen.end) continue;
      AttendPanel(panel, seen, seen.begin - keys.begin, next_block);
      if (!finite) {
        AddNonFinite<T>(block_, panel.row_begin, panel.row_end, seen, Strided{scores_, 1, panel.stride},
                        Strided{panel.output, 1, panel.stride});
      }
    }
  }

  // `keys` begin at row tile_begin of the tiles.
  void AttendPanel(const Panel& panel, KeyRange keys, std::int64_t tile_begin, NextBlock& next_block) {
    const auto prefetch = [&] { next_block.Advance(); };
    const Lanes d;
    const std::int64_t dims = shape_.head_dim, value_dims = shape_.value_head_dim;
    MultiplyPanel<Update::kOverwrite>(d, RoundUp(keys.size(), kTileRows), panel.vectors, dims,
                                      {key_ + tile_begin * dims, dims, 1}, {panel.query, panel.stride}, {scores_, panel.stride},
                                      nullptr, prefetch);
    TransformScores(panel, keys);
    HWY_ALIGN float rescale[kTileVectors * kLanes];
    for (std::int64_t v = 0; v < panel.vectors; ++v) SoftmaxLanes(panel, v * kLanes, keys.size(), rescale);
    MultiplyPanel<Update::kScaleAdd>(d, value_dims, panel.vectors, keys.size(),
                                     {value_ + tile_begin * value_dims, 1, value_dims}, {scores_, panel.stride},
                                     {panel.output, panel.stride}, rescale, prefetch);
  }

  // From products to logits: scale, soft cap, ALiBi, bias, and -inf for hidden keys, each only where it has an effect.
  void TransformScores(const Panel& panel, KeyRange keys) {
    const AttentionParams& params = block_.params;
    const LogitTransform transform(params);
    if (!transform.IsIdentity()) ApplyTransform(panel, keys, transform);
    if (params.bias != nullptr) AddBias(panel, keys);
    const KeyRange every = block_.RangeOfEveryRow(panel.row_begin, panel.row_end);
    if (keys.begin < every.begin || keys.end > every.end) MaskHidden(panel, keys);
  }

  void ApplyTransform(const Panel& panel, KeyRange keys, LogitTransform transform) {
    const Lanes d;
    HWY_ALIGN float slope[kTileVectors * kLanes] = {};
    HWY_ALIGN float position[kTileVectors * kLanes] = {};  // that the row is aligned to, counted from the first key
    for (std::int64_t lane = 0; transform.has_alibi && lane < panel.stride; ++lane) {
      const std::int64_t row = RowOfLane(panel, lane);
      slope[lane] = block_.params.alibi_slopes[block_.Head(row)];
      position[lane] = static_cast<float>(block_.visible.Position(block_.Query(row)) - keys.begin);
    }
    for (std::int64_t j = 0; j < keys.size(); ++j) {
      for (std::int64_t lane = 0; lane < panel.stride; lane += kLanes) {
        float* score = scores_ + j * panel.stride + lane;
        const Vector distance = hn::Abs(hn::Sub(hn::Load(d, position + lane), hn::Set(d, static_cast<float>(j))));
        hn::StoreU(transform(hn::LoadU(d, score), hn::Load(d, slope + lane), distance), d, score);
      }
    }
  }

  void AddBias(const Panel& panel, KeyRange keys) {
    const Lanes d;
    for (std::int64_t lane = 0; lane < panel.stride; lane += kLanes) {
      const float* rows[kLanes];
      for (std::int64_t i = 0; i < kLanes; ++i) rows[i] = block_.Bias(RowOfLane(panel, lane + i)) + keys.begin;
      for (std::int64_t j = 0; j < keys.size(); j += kLanes) {
        const std::int64_t count = std::min(kLanes, keys.size() - j);
        Vector m[kLanes];
        for (std::int64_t i = 0; i < kLanes; ++i) {
          m[i] = count == kLanes ? hn::LoadU(d, rows[i] + j) : LoadFloat32N(d, rows[i] + j, count);
        }
        Transpose(d, m);
        for (std::int64_t i = 0; i < count; ++i) {
          float* score = scores_ + (j + i) * panel.stride + lane;
          hn::StoreU(AddBiasTo(hn::LoadU(d, score), m[i]), d, score);
        }
      }
    }
  }

  void MaskHidden(const Panel& panel, KeyRange keys) {
    const Lanes d;
    HWY_ALIGN float first[kTileVectors * kLanes];  // keys that the row sees, counted from the first key
    HWY_ALIGN float last[kTileVectors * kLanes];
    for (std::int64_t lane = 0; lane < panel.stride; ++lane) {
      const KeyRange range = block_.visible.OfQuery(block_.Query(RowOfLane(panel, lane)));
      first[lane] = static_cast<float>(std::clamp(range.begin, keys.begin, keys.end) - keys.begin);
      last[lane] = static_cast<float>(std::clamp(range.end, keys.begin, keys.end) - keys.begin);
    }
    for (std::int64_t j = 0; j < keys.size(); ++j) {
      const Vector key = hn::Set(d, static_cast<float>(j));
      for (std::int64_t lane = 0; lane < panel.stride; lane += kLanes) {
        float* score = scores_ + j * panel.stride + lane;
        const auto visible = hn::And(hn::Ge(key, hn::Load(d, first + lane)), hn::Lt(key, hn::Load(d, last + lane)));
        hn::StoreU(hn::IfThenElse(visible, hn::LoadU(d, score), hn::Set(d, -kInfinity)), d, score);
      }
    }
  }

  // Replaces the logits of one vector of rows by exp(logit - max), moves its max and sum on, and says by what factor all that
  // was summed up before has to shrink.
  void SoftmaxLanes(const Panel& panel, std::int64_t lane, std::int64_t num_keys, float* rescale) {
    const Lanes d;
    const Vector old_max = hn::LoadU(d, panel.max + lane);
    float* const scores = scores_ + lane;

    Vector max_even = old_max, max_odd = old_max;  // two chains: one would wait for its own latency
    std::int64_t j = 0;
    for (; j + 2 <= num_keys; j += 2) {
      max_even = hn::Max(max_even, hn::LoadU(d, scores + j * panel.stride));
      max_odd = hn::Max(max_odd, hn::LoadU(d, scores + (j + 1) * panel.stride));
    }
    if (j < num_keys) max_even = hn::Max(max_even, hn::LoadU(d, scores + j * panel.stride));
    const Vector max = hn::Max(max_even, max_odd);
    const Vector subtracted = FiniteMax(max);

    Vector sum_even = hn::Zero(d), sum_odd = hn::Zero(d);
    const auto exponential = [&](std::int64_t key) HWY_ATTR {
      float* score = scores + key * panel.stride;
      const Vector p = ExpOfNonPositive(d, hn::Sub(hn::LoadU(d, score), subtracted));
      hn::StoreU(p, d, score);
      return p;
    };
    for (j = 0; j + 2 <= num_keys; j += 2) {
      sum_even = hn::Add(sum_even, exponential(j));
      sum_odd = hn::Add(sum_odd, exponential(j + 1));
    }
    if (j < num_keys) sum_even = hn::Add(sum_even, exponential(j));

    const Vector factor = ExpOfNonPositive(d, hn::Sub(old_max, subtracted));
    hn::StoreU(max, d, panel.max + lane);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, panel.sum + lane), factor, hn::Add(sum_even, sum_odd)), d, panel.sum + lane);
    hn::StoreU(factor, d, rescale + lane);
  }

  void Finish(const Panel& panel) {
    if (block_.partial.output != nullptr) return FinishPartial(panel);
    for (std::int64_t lane = 0; lane < panel.row_end - panel.row_begin; ++lane) {
      StoreLogSumExp(block_, panel.row_begin + lane, panel.max[lane], panel.sum[lane]);
    }
    for (std::int64_t lane = 0; lane < panel.stride; ++lane) panel.sum[lane] = InverseSum(panel.sum[lane]);
    std::int64_t elements[kTileVectors * kLanes];
    for (std::int64_t lane = 0; lane < panel.stride; ++lane) {
      elements[lane] = block_.QueryToken(RowOfLane(panel, lane)) * shape_.value_head_dim;
    }
    StoreRows(panel, panel.sum, shape_.output_data_type, block_.params.output, elements);
  }

  void FinishPartial(const Panel& panel) {
    HWY_ALIGN float ones[kTileVectors * kLanes];
    std::int64_t elements[kTileVectors * kLanes];
    for (std::int64_t lane = 0; lane < panel.stride; ++lane) {
      const std::int64_t row = RowOfLane(panel, lane);
      ones[lane] = 1;
      elements[lane] = row * shape_.value_head_dim;
      block_.partial.max[row] = panel.max[lane];
      block_.partial.sum[row] = panel.sum[lane];
    }
    StoreRows(panel, ones, DataType::kFloat32, block_.partial.output, elements);
  }

  // Transposes back: the row of each lane, times its factor, goes to its element of `to`.
  void StoreRows(const Panel& panel, const float* factors, DataType type, void* to, const std::int64_t* elements) {
    const Lanes d;
    const std::int64_t dims = shape_.value_head_dim;
    for (std::int64_t lane = 0; lane < panel.stride; lane += kLanes) {
      const Vector factor = hn::LoadU(d, factors + lane);
      const std::int64_t rows = std::min(kLanes, panel.row_end - panel.row_begin - lane);
      for (std::int64_t dim = 0; dim < dims; dim += kLanes) {
        Vector m[kLanes];
        for (std::int64_t i = 0; i < kLanes; ++i) {
          m[i] = dim + i < dims ? hn::Mul(factor, hn::LoadU(d, panel.output + (dim + i) * panel.stride + lane)) : hn::Zero(d);
        }
        Transpose(d, m);
        for (std::int64_t i = 0; i < rows; ++i) StoreColumnsAs(type, m[i], to, elements[lane + i] + dim, dims - dim);
      }
    }
  }

  const RowBlock& block_;
  const AttentionShape& shape_;
  const TokenRows<T> keys_;
  const TokenRows<T> values_;
  const std::int64_t key_block_;
  const std::int64_t num_vectors_;
  const std::int64_t num_panels_;
  float* query_;
  float* output_;
  float* max_;
  float* sum_;
  float* scores_;
  float* key_;
  float* value_;
};

}  // namespace ridgeline::kernels::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RIDGELINE_KERNELS_ATTENTION_FLASH_TILE_INL_H_
