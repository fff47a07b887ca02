#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>

#include "kernels/attention/flash/flash_plan_cuda.h"
#include "kernels/attention/flash/float32_shape.h"
#include "kernels/attention/flash/merge.h"
#include "kernels/attention/flash/mma_shape.h"
#include "kernels/attention/visible_range.h"
#include "kernels/common/saturating.h"

namespace ridgeline::kernels::attention {
namespace {

// A split walks at least this many blocks of keys, so that merging stays a small part of the work.
constexpr std::int64_t kMinSplitBlocks = 4;
constexpr std::int64_t kMaxSplits = 128;
// Splitting stops paying where blocks fill this part of the device.
constexpr double kBusyEnough = 0.8;
// Of several cuts the coarsest is taken whose waves are filled nearly as well as the best one's.
constexpr double kNearlyBest = 0.85;

struct KernelShape {
  int tile_rows;
  int tile_keys;
  int head_dim;  // as padded
  int blocks_per_sm;
};

KernelShape ShapeOfKernel(const AttentionShape& shape) {
  if (shape.data_type == DataType::kFloat32) {
    const int head_dim = Float32HeadDim(shape);
    return {Float32ShapeOf(head_dim).tile_rows, Float32ShapeOf(head_dim).tile_keys, head_dim, 1};
  }
  const int head_dim = MmaHeadDim(shape);
  return {MmaShapeOf(head_dim).tile_rows, MmaShapeOf(head_dim).tile_keys, head_dim, 2};
}

TileSchedule ScheduleOf(const AttentionShape& shape, const Sequence* sequences, std::int64_t heads, int packed_heads,
                        int tile_rows) {
  TileSchedule schedule = {.num_sequences = shape.num_sequences,
                           .heads = heads,
                           .group_heads = static_cast<int>(shape.GroupHeads()),
                           .packed_heads = packed_heads,
                           .tile_rows = tile_rows};
  bool uniform = true;
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) {
    const std::int64_t tiles = schedule.NumTiles(sequences[i].query_tokens);
    uniform = uniform && tiles == schedule.NumTiles(sequences[0].query_tokens);
    schedule.num_tiles = SaturatingAdd(schedule.num_tiles, tiles);
  }
  if (uniform && shape.num_sequences > 0) schedule.tiles_per_sequence = schedule.num_tiles / shape.num_sequences;
  return schedule;
}

// Tokens of the longest sequence.
std::int64_t MostTokens(const AttentionShape& shape, const Sequence* sequences, std::int64_t Sequence::*tokens) {
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) most = std::max(most, sequences[i].*tokens);
  return most;
}

std::int64_t NumBlocksUnsplit(const TileSchedule& tiles) { return SaturatingMultiply({tiles.num_tiles, tiles.heads}); }

// Heads of a group side by side where that makes fewer tiles: where queries are few. Nothing for a problem that the kernels
// can't count: they count the rows and keys of a sequence in ints, and a grid its blocks in 31 bits.
std::optional<TileSchedule> ChooseSchedule(const AttentionShape& shape, const Sequence* sequences, int tile_rows) {
  const std::int64_t query_tokens = MostTokens(shape, sequences, &Sequence::query_tokens);
  const std::int64_t key_tokens = MostTokens(shape, sequences, &Sequence::key_tokens);
  if (std::max(query_tokens, key_tokens) > kMaxIntTokens) return std::nullopt;
  TileSchedule tiles = ScheduleOf(shape, sequences, shape.query_heads, 1, tile_rows);
  if (shape.GroupHeads() > 1 && SaturatingMultiply({query_tokens, shape.GroupHeads()}) <= kMaxIntTokens) {
    const TileSchedule packed = ScheduleOf(shape, sequences, shape.kv_heads, static_cast<int>(shape.GroupHeads()), tile_rows);
    if (NumBlocksUnsplit(packed) < 0.9 * static_cast<double>(NumBlocksUnsplit(tiles))) tiles = packed;
  }
  if (NumBlocksUnsplit(tiles) > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  return tiles;
}

// Blocks of keys that the busiest tile walks: of those that its sequence sees, where windows end on both sides only those next
// to its own queries.
std::int64_t MostKeyBlocks(const AttentionShape& shape, const Sequence* sequences, const TileSchedule& tiles, int tile_keys) {
  const std::int64_t tile_queries = (tiles.tile_rows + tiles.packed_heads - 2) / tiles.packed_heads + 1;
  const std::int64_t tile_window = shape.window_left + shape.window_right + tile_queries;
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) {
    if (sequences[i].query_tokens == 0) continue;
    const VisibleRange visible(shape, sequences[i].query_tokens, sequences[i].key_tokens);
    most = std::max(most, std::min(visible.OfQueries(0, sequences[i].query_tokens).size(), tile_window));
  }
  return (most + tile_keys - 1) / tile_keys;
}

// The part of the device that works while `blocks` blocks run, `slots` at a time.
double WaveEfficiency(double blocks, double slots) { return blocks / slots / std::ceil(blocks / slots); }

int ChooseSplits(std::int64_t num_blocks, std::int64_t key_blocks, std::int64_t slots) {
  if (num_blocks == 0 || static_cast<double>(num_blocks) >= kBusyEnough * static_cast<double>(slots)) return 1;
  const std::int64_t most = std::clamp<std::int64_t>(key_blocks / kMinSplitBlocks, 1, kMaxSplits);
  const auto efficiency = [&](std::int64_t splits) {
    return WaveEfficiency(static_cast<double>(num_blocks * splits), static_cast<double>(slots));
  };
  double best = 0;
  for (std::int64_t splits = 1; splits <= most; ++splits) best = std::max(best, efficiency(splits));
  std::int64_t splits = 1;
  while (efficiency(splits) < kNearlyBest * best) ++splits;
  return static_cast<int>(splits);
}

std::int64_t NumQueryTokens(const AttentionShape& shape, const Sequence* sequences) {
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) {
    tokens = std::max(tokens, SaturatingAdd(sequences[i].query_begin, sequences[i].query_tokens));
  }
  return tokens;
}

// Splits the keys of plan.tiles where that keeps the device busier, and makes room for the parts.
void SplitKeys(const AttentionShape& shape, const Sequence* sequences, const KernelShape& kernel, const CudaLimits& limits,
               AttentionPlan& plan) {
  plan.tiles.key_splits = ChooseSplits(plan.tiles.NumBlocks(), MostKeyBlocks(shape, sequences, plan.tiles, kernel.tile_keys),
                                       std::int64_t{limits.num_sms} * kernel.blocks_per_sm);
  plan.key_splits = plan.tiles.key_splits;
  if (plan.key_splits == 1) return;
  plan.merge_tiles = ScheduleOf(shape, sequences, 1, static_cast<int>(shape.query_heads), kMergeTileRows);
  plan.partial_rows = SaturatingMultiply({NumQueryTokens(shape, sequences), shape.query_heads});
  plan.workspace_bytes = SaturatingMultiply(
      {plan.key_splits, plan.partial_rows, shape.value_head_dim + 1, static_cast<std::int64_t>(sizeof(float))});
}

}  // namespace

void PlanFlashOnCuda(const AttentionShape& shape, const Sequence* sequences, const CudaLimits& limits, AttentionPlan& plan) {
  const KernelShape kernel = ShapeOfKernel(shape);
  plan.query_block = kernel.tile_rows;
  plan.key_block = kernel.tile_keys;
  if (const std::optional<TileSchedule> tiles = ChooseSchedule(shape, sequences, kernel.tile_rows)) {
    plan.tiles = *tiles;
    SplitKeys(shape, sequences, kernel, limits, plan);
  } else {
    plan.workspace_bytes = std::numeric_limits<std::int64_t>::max();
  }
  char name[96];
  std::snprintf(name, sizeof(name), "flash_%s[d=%d,bq=%d,bk=%d,group=%d,splits=%d]",
                shape.data_type == DataType::kFloat32 ? "float32" : "mma", kernel.head_dim, kernel.tile_rows, kernel.tile_keys,
                plan.tiles.packed_heads, plan.tiles.key_splits);
  plan.kernel = name;
}

}  // namespace ridgeline::kernels::attention
