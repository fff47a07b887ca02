// Moves keys and values between dense rows and pages. No arithmetic: bytes arrive as they left.
//
//   dense rows [num_rows, Hkv, D]          pages [num_pages, page_tokens, Hkv, D]
//   ┌───────────────┐     append           ┌────┬────┬────┬────┐
//   │ span 0 │ sp 1 │ ──────────────────►  │    │ 0  │ 1  │ 0  │   the block table says which pages, in what order
//   └───────────────┘  ◄──────────────────  └────┴────┴────┴────┘
//                           gather
//
// Legend as in attention.h: Hkv KV heads, D head_dim, Dv value_head_dim. All pointers are memory of the device that runs the
// work, aligned to 16 bytes; a row of D or Dv elements of one head is a multiple of 8 bytes.
#pragma once

#include <cstdint>

#include "kernels/common/data_type.h"
#include "kernels/common/executor.h"

namespace ridgeline::kernels::kv_cache {

// Keys and values of one layer.
struct Pages {
  DataType data_type;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t value_head_dim;
  std::int64_t page_tokens;  // >= 1, any
  void* key;                 // [num_pages, page_tokens, Hkv, D]
  void* value;               // [num_pages, page_tokens, Hkv, Dv]

  constexpr std::int64_t KeyRowBytes() const { return kv_heads * head_dim * ElementBytes(data_type); }
  constexpr std::int64_t ValueRowBytes() const { return kv_heads * value_head_dim * ElementBytes(data_type); }
};

// Consecutive tokens of one sequence, in dense rows and in pages: token t of the sequence lies in page
// block_table[table_begin + t / page_tokens], at t % page_tokens.
struct TokenSpan {
  std::int64_t row_begin;    // first dense row
  std::int64_t num_tokens;   // >= 0
  std::int64_t table_begin;  // the sequence's first entry in the block table
  std::int64_t token_begin;  // first token, counted within the sequence: may lie in the middle of a page
};

// Which dense rows belong to which tokens. A span begins at the end of the one before or later: rows between spans, and those
// past the last, belong to no token; they are neither read nor written. Nor are other tokens of the pages, other pages, and
// table entries of which a span has no token.
struct PagedRows {
  Pages pages;
  const std::int32_t* block_table;  // page ids; one page in two places of a launch only if it is read
  const TokenSpan* spans;           // [num_spans]
  std::int64_t num_spans;
  std::int64_t num_rows;  // at least the end of the last span
};

struct AppendParams {
  PagedRows to;
  const void* key;    // [num_rows, Hkv, D]
  const void* value;  // [num_rows, Hkv, Dv]
};

struct GatherParams {
  PagedRows from;  // pages are only read
  void* key;       // [num_rows, Hkv, D]
  void* value;     // [num_rows, Hkv, Dv]
};

struct PageCopy {
  std::int32_t source;       // page id; may be the source of several copies
  std::int32_t destination;  // page id; in one copy of a launch only, and the source of none
};

// Whole pages of every layer.
struct CopyPagesParams {
  void* key;    // first layer's plane: [num_pages, page_tokens, Hkv, D]
  void* value;  // first layer's plane: [num_pages, page_tokens, Hkv, Dv]
  std::int64_t num_layers;
  std::int64_t key_layer_stride_bytes;  // from one layer's plane to the next, a multiple of 16
  std::int64_t value_layer_stride_bytes;
  std::int64_t key_page_bytes;  // a multiple of 8
  std::int64_t value_page_bytes;
  const PageCopy* copies;  // [num_copies]
  std::int64_t num_copies;
};

// On the calling thread and the executor's.
void AppendOnCpu(const AppendParams& params, Executor& executor);
void GatherOnCpu(const GatherParams& params, Executor& executor);
void CopyPagesOnCpu(const CopyPagesParams& params, Executor& executor);

}  // namespace ridgeline::kernels::kv_cache
