#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/flash/flash.h"
#include "kernels/attention/flash/row_block.h"
#include "kernels/attention/flash/schedule.h"
#include "kernels/common/simd_fixed_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/flash/flash_cpu.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                                    // must come before highway.h
#include "hwy/highway.h"
#include "kernels/attention/flash/lanes-inl.h"
#include "kernels/attention/flash/stream-inl.h"
#include "kernels/attention/flash/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::attention::HWY_NAMESPACE {
namespace {

template <typename T>
void AttendTyped(const RowBlock& block, std::int64_t num_heads, const AttentionPlan& plan, float* scratch,
                 const Executor& executor) {
  if (block.rows <= kMaxStreamedRows) return StreamAttention<T>(block, num_heads, scratch).Run(executor);
  TileAttention<T>(block, plan, scratch).Run(executor);
}

}  // namespace

// Rows `block` of its KV head and, where streamed, of the num_heads - 1 that follow.
void Attend(const RowBlock& block, std::int64_t num_heads, const AttentionPlan& plan, float* scratch,
            const Executor& executor) {
  switch (block.params.shape.data_type) {
    case DataType::kFloat16:
      return AttendTyped<Float16>(block, num_heads, plan, scratch, executor);
    case DataType::kBFloat16:
      return AttendTyped<BFloat16>(block, num_heads, plan, scratch, executor);
    default:
      return AttendTyped<float>(block, num_heads, plan, scratch, executor);
  }
}

// Combines the partial results of all rows of `block`: O and sum of each split count with exp(its max - the largest max). The
// block's partial rows are those of split 0, and those of each further split lie split_rows behind the one before.
void Merge(const RowBlock& block, std::int64_t num_splits, std::int64_t split_rows) {
  const Lanes d;
  const std::int64_t dims = block.params.shape.value_head_dim;
  const PartialRows& partial = block.partial;
  for (std::int64_t row = 0; row < block.rows; ++row) {
    float max = -kInfinity;
    for (std::int64_t s = 0; s < num_splits; ++s) max = std::max(max, partial.max[s * split_rows + row]);
    const float subtracted = max == -kInfinity ? 0 : max;  // all empty: the merged result is empty too

    float sum = 0;
    HWY_ALIGN float output[RoundUp(kMaxHeadDim, kMaxLanes)] = {};
    for (std::int64_t s = 0; s < num_splits; ++s) {
      const std::int64_t partial_row = s * split_rows + row;
      const float weight = std::exp(partial.max[partial_row] - subtracted);
      sum += weight * partial.sum[partial_row];
      const float* from = partial.output + partial_row * dims;
      for (std::int64_t dim = 0; dim < dims; dim += kLanes) {
        const Vector part = LoadColumns(from + dim, dims - dim);
        hn::Store(hn::MulAdd(part, hn::Set(d, weight), hn::Load(d, output + dim)), d, output + dim);
      }
    }
    StoreLogSumExp(block, row, max, sum);
    StoreOutputRow(block, row, output, InverseSum(sum));
  }
}

}  // namespace ridgeline::kernels::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::attention {

HWY_EXPORT(Attend);
HWY_EXPORT(Merge);

namespace {

// Maps work items to sequences, and sequences to their partial results. Lives on the caller's stack for the length of a launch.
class Launch {
 public:
  Launch(const AttentionPlan& plan, const AttentionParams& params, int num_slots)
      : plan_(plan), params_(params), layout_(LayOutWorkspace(params.shape, params.sequences, plan, num_slots)) {
    auto* const workspace = static_cast<std::byte*>(params.workspace);
    first_item_ = reinterpret_cast<std::int64_t*>(workspace + layout_.item_table);
    first_partial_ = reinterpret_cast<std::int64_t*>(workspace + layout_.partial_table);
    partials_ = reinterpret_cast<float*>(workspace + layout_.partials);
    slots_ = workspace + layout_.slots;
    FillTables();
  }

  std::int64_t num_items() const { return first_item_[params_.shape.num_sequences]; }
  bool has_partials() const { return num_partial_rows() > 0; }

  void RunItem(std::int64_t item_idx, int slot, const Executor& executor) const {
    std::int64_t* const end = first_item_ + params_.shape.num_sequences + 1;
    const std::int64_t s = std::upper_bound(first_item_, end, item_idx) - first_item_ - 1;
    const SequenceCut cut = Cut(s);
    const WorkItem item = ItemOf(cut, params_.shape.kv_heads, item_idx - first_item_[s]);
    RowBlock block = Block(s, cut, item);
    const KeyRange range = block.RangeOfRows(0, block.rows);
    block.keys = SplitRange(range, cut.key_splits, item.split);
    auto* const scratch = reinterpret_cast<float*>(slots_ + slot * layout_.slot_bytes);
    HWY_DYNAMIC_DISPATCH(Attend)(block, item.kv_head_end - item.kv_head_begin, plan_, scratch, executor);
  }

  // Merges the splits of one sequence, if it has any.
  void MergeSequence(std::int64_t s) const {
    const SequenceCut cut = Cut(s);
    if (cut.key_splits == 1) return;
    const std::int64_t kv_heads = params_.shape.kv_heads;
    const RowBlock first = Block(s, cut, {0, kv_heads, 0, cut.rows, 0});
    for (std::int64_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
      HWY_DYNAMIC_DISPATCH(Merge)(first.ForKvHead(kv_head), cut.key_splits, kv_heads * cut.rows);
    }
  }

 private:
  SequenceCut Cut(std::int64_t s) const {
    return CutSequence(params_.shape, params_.sequences[s], plan_.query_block, plan_.key_splits);
  }

  std::int64_t num_partial_rows() const { return first_partial_[params_.shape.num_sequences]; }

  void FillTables() {
    std::int64_t items = 0, partial_rows = 0;
    for (std::int64_t s = 0; s < params_.shape.num_sequences; ++s) {
      const SequenceCut cut = Cut(s);
      first_item_[s] = items;
      first_partial_[s] = partial_rows;
      items += cut.NumItems(params_.shape.kv_heads);
      partial_rows += cut.NumPartialRows(params_.shape.kv_heads);
    }
    first_item_[params_.shape.num_sequences] = items;
    first_partial_[params_.shape.num_sequences] = partial_rows;
  }

  RowBlock Block(std::int64_t s, const SequenceCut& cut, const WorkItem& item) const {
    const Sequence& sequence = params_.sequences[s];
    RowBlock block = {.params = params_,
                      .sequence = sequence,
                      .sequence_idx = s,
                      .visible = VisibleRange(params_.shape, sequence.query_tokens, sequence.key_tokens),
                      .kv_head = item.kv_head_begin,
                      .row_begin = item.row_begin,
                      .rows = item.row_end - item.row_begin,
                      .keys = {0, sequence.key_tokens},
                      .has_sink = params_.sink_logits != nullptr && item.split == 0,
                      .partial = {}};
    if (cut.key_splits > 1) {
      const std::int64_t rows = num_partial_rows(), dims = params_.shape.value_head_dim;
      const PartialRows all = {.output = partials_, .max = partials_ + rows * dims, .sum = partials_ + rows * dims + rows};
      block.partial = all.Skip(first_partial_[s] + (item.split * params_.shape.kv_heads + item.kv_head_begin) * cut.rows, dims);
    }
    return block;
  }

  const AttentionPlan& plan_;
  const AttentionParams& params_;
  const WorkspaceLayout layout_;
  std::int64_t* first_item_;     // [num_sequences + 1]
  std::int64_t* first_partial_;  // [num_sequences + 1]
  float* partials_;
  std::byte* slots_;
};

}  // namespace

void RunFlashOnCpu(const AttentionPlan& plan, const AttentionParams& params, Executor& executor) {
  const Launch launch(plan, params, executor.num_slots());
  executor.ParallelFor(launch.num_items(), [&](std::int64_t item, int slot) { launch.RunItem(item, slot, executor); });
  if (!launch.has_partials()) return;
  executor.ParallelFor(params.shape.num_sequences, [&](std::int64_t s, int) { launch.MergeSequence(s); });
}

}  // namespace ridgeline::kernels::attention
#endif  // HWY_ONCE
