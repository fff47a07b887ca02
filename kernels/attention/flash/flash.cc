#include "kernels/attention/flash/flash.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "kernels/attention/flash/schedule.h"
#include "kernels/common/saturating.h"

namespace ridgeline::kernels::attention {
namespace {

// Measured, see README.md: rates are level around these.
constexpr std::int64_t kMostBlockRows = 192;
constexpr std::int64_t kMostKeys = 128;
// Steps in which both shrink: whole panels of three of the widest vectors, and whole tiles of keys.
constexpr std::int64_t kRowStep = 3 * kMaxLanes;
constexpr std::int64_t kKeyStep = 32;
// Less work, about 10 microseconds of one core, is not worth handing to another thread.
constexpr double kMinItemFlops = 2e6;
// Items for each slot, so that the last one to finish keeps the others waiting for a small part of the whole.
constexpr int kItemsPerSlot = 4;

struct Work {
  std::int64_t num_items = 0;
  double flops = 0;  // of all rows with all keys that one of their sequence sees
  // Of sequences with a single row block, whose keys can be split:
  double largest_item_flops = 0;
  std::int64_t most_keys = 0;
};

Work MeasureWork(const AttentionShape& shape, const Sequence* sequences, std::int64_t query_block) {
  Work work;
  for (std::int64_t s = 0; s < shape.num_sequences; ++s) {
    const Sequence& sequence = sequences[s];
    const SequenceCut cut = CutSequence(shape, sequence, query_block, 1);
    if (cut.rows == 0) continue;
    const VisibleRange visible(shape, sequence.query_tokens, sequence.key_tokens);
    const std::int64_t keys = visible.OfQueries(0, sequence.query_tokens).size();
    const std::int64_t items = cut.NumItems(shape.kv_heads);
    const double flops = 2.0 * static_cast<double>(cut.rows) * static_cast<double>(keys) *
                         static_cast<double>(shape.kv_heads * (shape.head_dim + shape.value_head_dim));
    work.num_items = SaturatingAdd(work.num_items, items);
    work.flops += flops;
    if (cut.row_blocks == 1) {
      work.largest_item_flops = std::max(work.largest_item_flops, flops / static_cast<double>(items));
      work.most_keys = std::max(work.most_keys, keys);
    }
  }
  return work;
}

// The largest blocks of which a slot's arrays fit into the L2 cache.
void FitBlocksToCache(const AttentionShape& shape, std::int64_t l2_cache_bytes, AttentionPlan& plan) {
  const auto fits = [&] {
    const std::int64_t floats = LayOutTileScratch(shape, plan.query_block, plan.key_block).floats;
    return floats * std::int64_t{sizeof(float)} <= l2_cache_bytes;
  };
  plan.query_block = kMostBlockRows;
  plan.key_block = kMostKeys;
  while (!fits() && plan.key_block > kKeyStep) plan.key_block -= kKeyStep;
  while (!fits() && plan.query_block > kRowStep) plan.query_block -= kRowStep;
}

}  // namespace

void PlanFlashOnCpu(const AttentionShape& shape, const Sequence* sequences, const CpuLimits& limits, AttentionPlan& plan) {
  FitBlocksToCache(shape, limits.l2_cache_bytes, plan);
  Work work = MeasureWork(shape, sequences, plan.query_block);
  const double most_items = limits.num_slots == 1 ? 1 : kItemsPerSlot * limits.num_slots;
  const double wanted_items = std::min(most_items, std::floor(work.flops / kMinItemFlops));
  while (static_cast<double>(work.num_items) < wanted_items && plan.query_block > kRowStep) {
    plan.query_block -= kRowStep;
    work = MeasureWork(shape, sequences, plan.query_block);
  }
  plan.key_splits = 1;
  if (wanted_items > 1) {
    // As many as bring the largest item down to its share of the whole.
    const auto splits = static_cast<std::int64_t>(std::ceil(work.largest_item_flops * wanted_items / work.flops));
    plan.key_splits = std::max<std::int64_t>(1, std::min(splits, work.most_keys / kMinSplitKeys));
  }
  plan.workspace_bytes = LayOutWorkspace(shape, sequences, plan, limits.num_slots).total_bytes;
  plan.kernel = "flash_cpu[bq=" + std::to_string(plan.query_block) + ",bk=" + std::to_string(plan.key_block) +
                ",splits=" + std::to_string(plan.key_splits) + "]";
}

}  // namespace ridgeline::kernels::attention
