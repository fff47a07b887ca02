#include "kernels/attention/prefill_sm90/prefill_plan_cuda.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "kernels/attention/prefill_sm90/prefill_schedule.h"
#include "kernels/attention/prefill_sm90/prefill_shape.h"
#include "kernels/attention/visible_range.h"
#include "kernels/common/rounding.h"
#include "kernels/common/saturating.h"

namespace ridgeline::kernels::attention {
namespace {

constexpr int kHopper = 90;
// The copy engine's boxes begin at multiples of eight rows of shared memory, where the swizzle repeats.
constexpr int kLeastCopyKeys = 8;
// Of tiles for head_dim 64: query tokens up to which they are not the long ones, and rows that are far less than others.
// README.md, "Sizes", has what chose them.
constexpr std::int64_t kLongTokens = 4096;
constexpr double kFarLess = 0.8;
// With fewer tiles a head, long and short ones are mixed, in all groups of heads but the last.
constexpr int kManyTiles = 16;
// Keys and values of the heads that are computed together, in bytes: what stays in an L2 cache of 50 MB.
constexpr std::int64_t kGroupBytes = 24'000'000, kMixedGroupBytes = 4'000'000, kLastGroupBytes = 16'000'000;
// Rows of a tile that exist, on average, and multiprocessors that have a tile, from which on this kernel is chosen: the generic
// one fills smaller tiles by packing heads, and the device by splitting keys, at half the rate.
constexpr double kFullEnough = 0.5, kBusyEnough = 0.45;
// Below so many keys there is nothing to split.
constexpr std::int64_t kFewKeys = 1024;
// Batches of shorter sequences are not what the kernel is for. Latency decides there, and where rows and keys are few its
// rounding of weights shows: the generic kernel takes them in two parts.
constexpr std::int64_t kLeastQueryTokens = 128;

std::int64_t MostQueryTokens(const AttentionShape& shape, const Sequence* sequences) {
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) most = std::max(most, sequences[i].query_tokens);
  return most;
}

// Where the last query, or key, ends.
std::int64_t End(const AttentionShape& shape, const Sequence* sequences, std::int64_t Sequence::*begin,
                 std::int64_t Sequence::*tokens) {
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) {
    end = std::max(end, SaturatingAdd(sequences[i].*begin, sequences[i].*tokens));
  }
  return end;
}
std::int64_t QueryEnd(const AttentionShape& shape, const Sequence* sequences) {
  return End(shape, sequences, &Sequence::query_begin, &Sequence::query_tokens);
}
std::int64_t KeyEnd(const AttentionShape& shape, const Sequence* sequences) {
  return End(shape, sequences, &Sequence::key_begin, &Sequence::key_tokens);
}

// Of one head, over all sequences.
std::int64_t TilesOfHead(const AttentionShape& shape, const Sequence* sequences, int tile_rows) {
  std::int64_t tiles = 0;
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) {
    tiles = SaturatingAdd(tiles, CeilDivide(sequences[i].query_tokens, tile_rows));
  }
  return tiles;
}

// Tiles of 256 rows and of 128: the smaller ones where the larger would be filled far less, or leave multiprocessors idle.
int ChooseShapeOf64(const AttentionShape& shape, const Sequence* sequences, const CudaLimits& limits) {
  if (MostQueryTokens(shape, sequences) > kLongTokens) return kPrefill64Long;
  const int large_rows = kPrefillShapes[kPrefill64].TileRows(), small_rows = kPrefillShapes[kPrefill64Small].TileRows();
  const auto large_tiles = static_cast<double>(TilesOfHead(shape, sequences, large_rows));
  const auto small_tiles = static_cast<double>(TilesOfHead(shape, sequences, small_rows));
  const bool is_idle = large_tiles * static_cast<double>(shape.query_heads) < limits.num_sms;
  return is_idle || small_tiles * small_rows < kFarLess * large_tiles * large_rows ? kPrefill64Small : kPrefill64;
}

int ChooseShape(const AttentionShape& shape, const Sequence* sequences, const CudaLimits& limits) {
  const std::int64_t columns = std::max(shape.head_dim, shape.value_head_dim);
  if (columns <= 64) return ChooseShapeOf64(shape, sequences, limits);
  if (columns <= 96) return kPrefill96;
  if (columns <= 128) return kPrefill128;
  if (columns <= 192) return shape.value_head_dim <= 128 ? kPrefill192To128 : kPrefill192;
  return kPrefill256;
}

Sequence Difference(const Sequence& a, const Sequence& b) {
  return {.query_begin = a.query_begin - b.query_begin,
          .query_tokens = a.query_tokens - b.query_tokens,
          .key_begin = a.key_begin - b.key_begin,
          .key_tokens = a.key_tokens - b.key_tokens,
          .lse_begin = a.lse_begin - b.lse_begin};
}

bool AreEqual(const Sequence& a, const Sequence& b) {
  return a.query_begin == b.query_begin && a.query_tokens == b.query_tokens && a.key_begin == b.key_begin &&
         a.key_tokens == b.key_tokens && a.lse_begin == b.lse_begin;
}

// Whether sequences all look alike and lie one stride apart.
bool AreUniform(const AttentionShape& shape, const Sequence* sequences) {
  for (std::int64_t i = 1; i < shape.num_sequences; ++i) {
    const Sequence stride = Difference(sequences[i], sequences[i - 1]);
    if (stride.query_tokens != 0 || stride.key_tokens != 0) return false;
    if (!AreEqual(stride, Difference(sequences[1], sequences[0]))) return false;
  }
  return true;
}

void OrderTiles(const AttentionShape& shape, PrefillSchedule& schedule) {
  // Where windows end on both sides all tiles are about as long.
  const std::int64_t query_tokens = schedule.first.query_tokens, key_tokens = schedule.first.key_tokens;
  schedule.longest_first = shape.window_right < key_tokens && shape.window_left >= query_tokens;
  if (!schedule.longest_first) return;
  const bool are_many = schedule.tiles_per_head >= kManyTiles;
  const std::int64_t head_bytes = SaturatingMultiply({key_tokens, shape.head_dim + shape.value_head_dim, 2});
  const std::int64_t heads = shape.num_sequences * shape.query_heads;
  const auto heads_of = [&](std::int64_t bytes) {
    const std::int64_t kv_heads = bytes / std::max<std::int64_t>(head_bytes, 1);
    return static_cast<int>(std::clamp<std::int64_t>(SaturatingMultiply({kv_heads, shape.GroupHeads()}), 1, heads));
  };
  schedule.group_heads = heads_of(are_many ? kGroupBytes : kMixedGroupBytes);
  schedule.last_heads = are_many ? 0 : heads_of(kLastGroupBytes);
  schedule.short_tiles = are_many ? schedule.tiles_per_head / 4 : 0;
}

}  // namespace

std::string WhyNotPrefill(const AttentionShape& shape, const Sequence* sequences, const CudaLimits& limits) {
  if (limits.compute_capability != kHopper) return "the device is not of compute capability 9.0";
  if (shape.data_type == DataType::kFloat32) return "it takes 16-bit types";
  if (QueryEnd(shape, sequences) > kMaxIntTokens) return "too many query tokens in the batch";
  if (MostQueryTokens(shape, sequences) < kLeastQueryTokens) return "fewer than 128 query tokens in every sequence";
  if (!shape.IsPaged() && KeyEnd(shape, sequences) > kMaxIntTokens) return "too many key tokens in the batch";
  if (!shape.IsPaged() && KeyEnd(shape, sequences) == 0) return "no key tokens";
  const PrefillShape& tile = kPrefillShapes[ChooseShape(shape, sequences, limits)];
  if (CopyKeys(shape, tile.tile_keys) < kLeastCopyKeys) return "pages whose tokens are no multiple of 8";
  if (SaturatingMultiply({TilesOfHead(shape, sequences, tile.TileRows()), shape.query_heads}) > kMaxIntTokens) {
    return "too many tiles";
  }
  return "";
}

bool PrefersPrefill(const AttentionShape& shape, const Sequence* sequences, const CudaLimits& limits) {
  const int tile_rows = kPrefillShapes[ChooseShape(shape, sequences, limits)].TileRows();
  std::int64_t rows = 0, most_keys = 0;
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) {
    rows += sequences[i].query_tokens;
    most_keys = std::max(most_keys, sequences[i].key_tokens);
  }
  const auto tiles = static_cast<double>(TilesOfHead(shape, sequences, tile_rows));
  if (static_cast<double>(rows) < kFullEnough * tiles * tile_rows) return false;
  return most_keys <= kFewKeys || tiles * static_cast<double>(shape.query_heads) >= kBusyEnough * limits.num_sms;
}

void PlanPrefillOnCuda(const AttentionShape& shape, const Sequence* sequences, const CudaLimits& limits, AttentionPlan& plan) {
  PrefillSchedule& schedule = plan.prefill;
  schedule.shape_idx = ChooseShape(shape, sequences, limits);
  const PrefillShape& tile = kPrefillShapes[schedule.shape_idx];
  schedule.num_tiles = static_cast<int>(TilesOfHead(shape, sequences, tile.TileRows()) * shape.query_heads);
  schedule.num_blocks = std::min(schedule.num_tiles, limits.num_sms);
  schedule.query_tokens = static_cast<int>(QueryEnd(shape, sequences));
  schedule.key_tokens = shape.IsPaged() ? 0 : static_cast<int>(KeyEnd(shape, sequences));
  schedule.window_left = static_cast<int>(std::min(shape.window_left, 2 * kMaxIntTokens));
  schedule.window_right = static_cast<int>(std::min(shape.window_right, 2 * kMaxIntTokens - 1));
  schedule.copy_keys = CopyKeys(shape, tile.tile_keys);
  if (shape.IsPaged()) schedule.page_tokens = FastDivision(static_cast<std::uint32_t>(shape.page_tokens));
  if (AreUniform(shape, sequences)) {
    schedule.first = sequences[0];
    if (shape.num_sequences > 1) schedule.stride = Difference(sequences[1], sequences[0]);
    schedule.tiles_per_head = static_cast<int>(CeilDivide(sequences[0].query_tokens, tile.TileRows()));
    OrderTiles(shape, schedule);
  }
  plan.query_block = tile.TileRows();
  plan.key_block = tile.tile_keys;
  plan.merge_workspace_bytes = 64;  // the number of the next tile
  char name[96];
  std::snprintf(name, sizeof(name), "prefill_sm90[d=%d,dv=%d,bq=%d,bk=%d,%s]", tile.head_dim, tile.value_head_dim,
                tile.TileRows(), tile.tile_keys, schedule.longest_first ? "longest first" : "in order");
  plan.kernel = name;
}

}  // namespace ridgeline::kernels::attention
