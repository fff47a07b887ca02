#include "kernels/attention/flash/schedule.h"

#include <cstddef>

#include "kernels/common/saturating.h"

namespace ridgeline::kernels::attention {
namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t Aligned(std::int64_t bytes) { return bytes > INT64_MAX - kAlignment ? INT64_MAX : RoundUp(bytes, kAlignment); }

// Hands out consecutive arrays of floats, each aligned.
class Arrays {
 public:
  std::int64_t Take(std::int64_t floats) {
    const std::int64_t offset = end_;
    end_ += RoundUp(floats, kMaxLanes);
    return offset;
  }
  std::int64_t end() const { return end_; }

 private:
  std::int64_t end_ = 0;
};

}  // namespace

SequenceCut CutSequence(const AttentionShape& shape, const Sequence& sequence, std::int64_t query_block,
                        std::int64_t key_splits) {
  SequenceCut cut;
  if (sequence.query_tokens == 0) return cut;
  cut.rows = SaturatingMultiply({sequence.query_tokens, shape.GroupHeads()});
  // Blocks of equal size, but for the rounding to whole vectors.
  const std::int64_t least_blocks = (cut.rows - 1) / query_block + 1;
  cut.block_rows = RoundUp((cut.rows - 1) / least_blocks + 1, kMaxLanes);
  cut.row_blocks = (cut.rows - 1) / cut.block_rows + 1;
  if (cut.rows <= kMaxStreamedRows) cut.item_heads = StreamedHeads(shape, cut.rows);
  if (cut.row_blocks == 1) {
    const VisibleRange visible(shape, sequence.query_tokens, sequence.key_tokens);
    const std::int64_t keys = visible.OfQueries(0, sequence.query_tokens).size();
    cut.key_splits = std::clamp<std::int64_t>(keys / kMinSplitKeys, 1, key_splits);
  }
  return cut;
}

WorkItem ItemOf(const SequenceCut& cut, std::int64_t kv_heads, std::int64_t item_idx) {
  const std::int64_t head_groups = CeilDivide(kv_heads, cut.item_heads);
  const std::int64_t split = item_idx % cut.key_splits;
  const std::int64_t kv_head = item_idx / cut.key_splits % head_groups * cut.item_heads;
  const std::int64_t block = cut.row_blocks - 1 - item_idx / cut.key_splits / head_groups;
  const std::int64_t row_begin = block * cut.block_rows;
  return {.kv_head_begin = kv_head,
          .kv_head_end = std::min(kv_head + cut.item_heads, kv_heads),
          .row_begin = row_begin,
          .row_end = std::min(row_begin + cut.block_rows, cut.rows),
          .split = split};
}

KeyRange SplitRange(KeyRange range, std::int64_t key_splits, std::int64_t split) {
  const std::int64_t span = key_splits == 1 ? range.size() : RoundUp(CeilDivide(range.size(), key_splits), kMaxLanes);
  const std::int64_t begin = std::min(range.begin + split * span, range.end);
  return {begin, std::min(begin + span, range.end)};
}

WorkspaceLayout LayOutWorkspace(const AttentionShape& shape, const Sequence* sequences, const AttentionPlan& plan,
                                int num_slots) {
  std::int64_t partial_rows = 0;
  for (std::int64_t s = 0; s < shape.num_sequences; ++s) {
    const SequenceCut cut = CutSequence(shape, sequences[s], plan.query_block, plan.key_splits);
    partial_rows = SaturatingAdd(partial_rows, cut.NumPartialRows(shape.kv_heads));
  }
  const std::int64_t table_bytes =
      Aligned(SaturatingMultiply({SaturatingAdd(shape.num_sequences, 1), std::int64_t{sizeof(std::int64_t)}}));
  const std::int64_t partial_bytes =
      Aligned(SaturatingMultiply({partial_rows, shape.value_head_dim + 2, std::int64_t{sizeof(float)}}));
  const std::int64_t slot_floats =
      std::max(LayOutTileScratch(shape, plan.query_block, plan.key_block).floats, LayOutStreamScratch(shape).floats);

  WorkspaceLayout layout;
  layout.item_table = 0;
  layout.partial_table = table_bytes;
  layout.partials = SaturatingAdd(table_bytes, table_bytes);
  layout.slots = SaturatingAdd(layout.partials, partial_bytes);
  layout.slot_bytes = slot_floats * std::int64_t{sizeof(float)};
  layout.total_bytes = SaturatingAdd(layout.slots, SaturatingMultiply({layout.slot_bytes, num_slots}));
  return layout;
}

TileScratch LayOutTileScratch(const AttentionShape& shape, std::int64_t query_block, std::int64_t key_block) {
  Arrays arrays;
  TileScratch scratch;
  scratch.query = arrays.Take(query_block * shape.head_dim);
  scratch.output = arrays.Take(query_block * shape.value_head_dim);
  scratch.max = arrays.Take(query_block);
  scratch.sum = arrays.Take(query_block);
  scratch.scores = arrays.Take((key_block + TileScratch::kKeyPadding) * TileScratch::kPanelRows);
  scratch.key = arrays.Take((key_block + TileScratch::kKeyPadding) * shape.head_dim);
  scratch.value = arrays.Take(key_block * shape.value_head_dim);
  scratch.floats = arrays.end();
  return scratch;
}

std::int64_t StreamedHeads(const AttentionShape& shape, std::int64_t rows) {
  const std::int64_t head_bytes = shape.head_dim * ElementBytes(shape.data_type);
  return std::min(
      {CeilDivide(kStreamedPieceBytes, head_bytes), kMaxStreamedHeads, kMostStreamedItemRows / rows, shape.kv_heads});
}

StreamScratch LayOutStreamScratch(const AttentionShape& shape) {
  const std::int64_t heads = StreamedHeads(shape, 1);
  const std::int64_t rows = kMostStreamedItemRows;
  Arrays arrays;
  StreamScratch scratch;
  scratch.query = arrays.Take(rows * RoundUp(shape.head_dim, kMaxLanes));
  scratch.output = arrays.Take(rows * RoundUp(shape.value_head_dim, kMaxLanes));
  scratch.max = arrays.Take(rows);
  scratch.sum = arrays.Take(rows);
  scratch.scores = arrays.Take(rows * kStreamedKeys);
  scratch.value = arrays.Take(kStreamedKeys * heads * shape.value_head_dim);
  scratch.floats = arrays.end();
  return scratch;
}

}  // namespace ridgeline::kernels::attention
