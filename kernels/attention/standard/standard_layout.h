// Where standard attention keeps what in its workspace.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"

namespace ridgeline::kernels::attention {

// One sequence's place in the workspace and among the tasks. The table ends with a slice more, which holds the totals.
struct StandardSlice {
  std::int64_t first_query;  // row in the copies of query and output
  std::int64_t first_key;    // row in the copies of key and value
  std::int64_t first_score;  // element of S: head 0, query 0, key 0
  std::int64_t first_task;   // block of score rows: head 0, query 0
};

// Byte offsets, each a multiple of 64, in the order of the workspace. Copies are float32 and stand in for 16-bit tensors, and
// for keys and values in pages; the query is not needed any more when the output is made, so they share room.
struct StandardLayout {
  std::int64_t slices;           // StandardSlice[num_sequences + 1]
  std::int64_t query_or_output;  // [query tokens, Hq, D], then [query tokens, Hq, Dv]
  std::int64_t key;              // [key tokens, Hkv, D]
  std::int64_t value;            // [key tokens, Hkv, Dv]
  std::int64_t scores;           // S, later P: for each sequence [Hq, Sq, Sk]
  std::int64_t total_bytes;
};

// Whether keys and values are read from copies.
constexpr bool CopiesKeyValue(const AttentionShape& shape) { return shape.data_type != DataType::kFloat32 || shape.IsPaged(); }

// Offsets saturate at INT64_MAX. `sequences` is host memory.
StandardLayout LayOutStandard(const AttentionShape& shape, const Sequence* sequences);

}  // namespace ridgeline::kernels::attention
