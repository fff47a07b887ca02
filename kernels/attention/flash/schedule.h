// How one launch of flash attention is cut into work items, and what memory they need. Pure host code, shared by plan and run.
//
//   sequence ─► rows: its Sq * (Hq/Hkv) query rows of one KV head, query by query, the heads of the group side by side
//            ─► row blocks of at most query_block rows                     each item: (KV heads, row block, split)
//            ─► splits of the key range, where one row block is all there is and the keys are many
//
// An item has one KV head, but where rows are so few that memory is what counts: then as many as lie side by side in a page.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/visible_range.h"
#include "kernels/common/rounding.h"

namespace ridgeline::kernels::attention {

inline constexpr std::int64_t kMaxHeadDim = 256;
// The widest vector of any target; row blocks, query_block and scratch arrays are multiples of it.
inline constexpr std::int64_t kMaxLanes = 16;
// Rows up to which keys and values are streamed from where they lie, instead of being copied to tiles: see README.md.
inline constexpr std::int64_t kMaxStreamedRows = 32;
// A streamed item takes as many KV heads side by side as make this many bytes of a key, but no more than kMaxStreamedHeads.
// Measured: reading every eighth 512 bytes comes to half of the rate of reading all, because each piece lies in another page.
inline constexpr std::int64_t kStreamedPieceBytes = 4096;
inline constexpr std::int64_t kMaxStreamedHeads = 32;
// Rows of a streamed item over all its heads, so that their queries and outputs stay in the L1 cache or close to it.
inline constexpr std::int64_t kMostStreamedItemRows = 64;
// Keys between two steps of a streamed item's online softmax.
inline constexpr std::int64_t kStreamedKeys = 64;
// A split has at least this many keys, so that merging stays a small part of the work.
inline constexpr std::int64_t kMinSplitKeys = 256;

// The cut of one sequence.
struct SequenceCut {
  std::int64_t rows = 0;        // Sq * Hq / Hkv, of each KV head
  std::int64_t row_blocks = 0;  // 0 if there is no query
  std::int64_t block_rows = 0;  // of each row block but the last
  std::int64_t item_heads = 1;  // KV heads of one item, or what is left of them
  std::int64_t key_splits = 1;

  std::int64_t NumItems(std::int64_t kv_heads) const { return CeilDivide(kv_heads, item_heads) * row_blocks * key_splits; }
  // Rows of partial results, over all heads and splits.
  std::int64_t NumPartialRows(std::int64_t kv_heads) const { return key_splits > 1 ? kv_heads * rows * key_splits : 0; }
};

SequenceCut CutSequence(const AttentionShape& shape, const Sequence& sequence, std::int64_t query_block,
                        std::int64_t key_splits);

// One task.
struct WorkItem {
  std::int64_t kv_head_begin;
  std::int64_t kv_head_end;
  std::int64_t row_begin;
  std::int64_t row_end;
  std::int64_t split;
};

// Item `item_idx` of a sequence. The last rows come first: under a causal mask they see the most keys, and the longest task
// should not start last.
WorkItem ItemOf(const SequenceCut& cut, std::int64_t kv_heads, std::int64_t item_idx);

// Keys [begin, end) of split `split` of `range`; splits differ by at most kMaxLanes keys and may be empty.
KeyRange SplitRange(KeyRange range, std::int64_t key_splits, std::int64_t split);

// Where things lie in the workspace, as byte offsets.
struct WorkspaceLayout {
  std::int64_t item_table;     // int64[num_sequences + 1]: first item of each sequence
  std::int64_t partial_table;  // int64[num_sequences + 1]: first partial row of each sequence
  std::int64_t partials;       // float[partial rows, Dv], then max and sum, float[partial rows] each
  std::int64_t slots;          // scratch of each slot
  std::int64_t slot_bytes;
  std::int64_t total_bytes;  // saturates at INT64_MAX
};

WorkspaceLayout LayOutWorkspace(const AttentionShape& shape, const Sequence* sequences, const AttentionPlan& plan,
                                int num_slots);

// Arrays of one slot for row blocks that go by tiles; offsets in floats, each a multiple of kMaxLanes.
struct TileScratch {
  // Scores of one panel: three vectors of rows at most. Tiles of keys are read up to 8 keys beyond their end.
  static constexpr std::int64_t kPanelRows = 3 * kMaxLanes;
  static constexpr std::int64_t kKeyPadding = 8;

  std::int64_t query;   // [panels][D, panel rows]
  std::int64_t output;  // [panels][Dv, panel rows]
  std::int64_t max;     // [query_block]
  std::int64_t sum;     // [query_block]
  std::int64_t scores;  // [key_block + kKeyPadding, kPanelRows]
  std::int64_t key;     // [key_block + kKeyPadding, D]
  std::int64_t value;   // [key_block, Dv]
  std::int64_t floats;
};

TileScratch LayOutTileScratch(const AttentionShape& shape, std::int64_t query_block, std::int64_t key_block);

// Arrays of one slot for a streamed item, for the rows of all its heads.
struct StreamScratch {
  std::int64_t query;   // [rows, D rounded up to kMaxLanes]
  std::int64_t output;  // [rows, Dv rounded up to kMaxLanes]
  std::int64_t max;     // [rows]
  std::int64_t sum;     // [rows]
  std::int64_t scores;  // [rows, kStreamedKeys]
  std::int64_t value;   // [kStreamedKeys, heads, Dv] of the inputs' type, for keys that some row may not see
  std::int64_t floats;
};

// KV heads of a streamed item with `rows` rows for each.
std::int64_t StreamedHeads(const AttentionShape& shape, std::int64_t rows);

StreamScratch LayOutStreamScratch(const AttentionShape& shape);

}  // namespace ridgeline::kernels::attention
