#include "kernels/attention/flash/flash.h"

#include <algorithm>
#include <string>

#include "kernels/attention/flash/schedule.h"
#include "kernels/common/saturating.h"

namespace ridgeline::kernels::attention {
namespace {

// Measured, see README.md: more rows amortise the copies of key and value tiles further, but gain no more than noise.
constexpr std::int64_t kMostBlockRows = 192;
// Of what a slot's thread can do at most; less is not worth handing to another thread.
constexpr std::int64_t kMinItemFlops = 1 << 21;
// Items for each slot, so that the last one to finish keeps the others waiting for a small part of the whole.
constexpr std::int64_t kItemsPerSlot = 4;

// Work of the whole launch and of its largest sequence with a single row block of query_block rows.
struct Work {
  std::int64_t num_items = 0;
  std::int64_t flops = 0;
  std::int64_t most_keys = 0;  // of any sequence with one row block
};

Work MeasureWork(const AttentionShape& shape, const Sequence* sequences, std::int64_t query_block) {
  Work work;
  for (std::int64_t s = 0; s < shape.num_sequences; ++s) {
    const Sequence& sequence = sequences[s];
    const SequenceCut cut = CutSequence(shape, sequence, query_block, 1);
    if (cut.rows == 0) continue;
    const VisibleRange visible(shape, sequence.query_tokens, sequence.key_tokens);
    const std::int64_t keys = visible.OfQueries(0, sequence.query_tokens).size();
    work.num_items = SaturatingAdd(work.num_items, cut.NumItems(shape.kv_heads));
    work.flops = SaturatingAdd(work.flops,
                               SaturatingMultiply({2, cut.rows, shape.kv_heads, keys, shape.head_dim + shape.value_head_dim}));
    if (cut.row_blocks == 1) work.most_keys = std::max(work.most_keys, keys);
  }
  return work;
}

}  // namespace

void PlanFlashOnCpu(const AttentionShape& shape, const Sequence* sequences, const CpuLimits& limits, AttentionPlan& plan) {
  plan.query_block = kMostBlockRows;
  plan.key_block = 128;
  Work work = MeasureWork(shape, sequences, plan.query_block);
  const std::int64_t wanted_items =
      limits.num_slots == 1 ? 1 : std::min(kItemsPerSlot * limits.num_slots, work.flops / kMinItemFlops);
  while (work.num_items < wanted_items && plan.query_block > 3 * kMaxLanes) {
    plan.query_block -= 3 * kMaxLanes;
    work = MeasureWork(shape, sequences, plan.query_block);
  }
  plan.key_splits = 1;
  if (work.num_items > 0 && work.num_items < wanted_items) {
    plan.key_splits = std::clamp<std::int64_t>(work.most_keys / kMinSplitKeys, 1, CeilDivide(wanted_items, work.num_items));
  }
  plan.workspace_bytes = LayOutWorkspace(shape, sequences, plan, limits.num_slots).total_bytes;
  plan.kernel = "flash_cpu[bq=" + std::to_string(plan.query_block) + ",bk=" + std::to_string(plan.key_block) +
                ",splits=" + std::to_string(plan.key_splits) + "]";
}

}  // namespace ridgeline::kernels::attention
