// What every attention kernel computes, as plain structs for host and device code.
//
// Legend: Hq query heads, Hkv KV heads, D head_dim, Dv value_head_dim; Sq, Sk query and key tokens of one sequence.
// For query i of Sq, key j of Sk, query head h of one sequence:
//
//   logit = scale * dot(q[i,h], k[j, h / (Hq/Hkv)])
//   logit = cap * tanh(logit / cap)                      if logit_soft_cap > 0
//   logit = logit - alibi_slopes[h] * |i + Sk - Sq - j|  if alibi_slopes
//   logit = logit + bias[sequence, h, i, j]              if bias
//   visible if i + Sk - Sq - window_left <= j <= i + Sk - Sq + window_right (a causal mask is window_right = 0)
//   lse    = log(sum over visible j of exp(logit) + exp(sink_logits[h]))
//   output = sum over visible j of exp(logit - lse) * v[j, h / (Hq/Hkv)]
//
// A row that sees no key has output 0 and lse -inf, or the sink's logit if there is a sink. A logit of -inf (from the bias) is
// the same as a masked key. What lies in keys and values that a query does not see never reaches its result, be it NaN or Inf.
// Logits, sums and lse are float32 for every type.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/common/data_type.h"

namespace ridgeline::kernels::attention {

enum class Algorithm : std::uint8_t { kStandard, kFlash };

constexpr const char* Name(Algorithm algorithm) { return algorithm == Algorithm::kStandard ? "standard" : "flash"; }

// A window bound that hides nothing; far enough from the limits of int64 that positions can be added to it.
inline constexpr std::int64_t kUnlimitedWindow = std::int64_t{1} << 61;

// Where one sequence's tokens lie in the packed arrays. Dense and ragged batches differ only in this table: row b of a dense
// batch begins at token b * key_tokens of the batch, and its valid length may be shorter. Where keys and values lie in pages,
// key_begin points into the block table instead.
struct Sequence {
  std::int64_t query_begin;   // first token in query and output
  std::int64_t query_tokens;  // Sq, >= 0
  std::int64_t key_begin;     // first token in key and value; paged: the sequence's first entry in block_table
  std::int64_t key_tokens;    // Sk, >= 0
  std::int64_t lse_begin;     // first element in log_sum_exp: head 0, query 0
};

// The part of a problem that fixes its cost, its plan and its mask. No pointers to tensors.
struct AttentionShape {
  DataType data_type;         // of query, key and value: float32, float16 or bfloat16
  DataType output_data_type;  // float32, float16 or bfloat16
  std::int64_t num_sequences;
  std::int64_t query_heads;                      // Hq, a multiple of kv_heads
  std::int64_t kv_heads;                         // Hkv
  std::int64_t head_dim;                         // D, a multiple of 8 up to 256
  std::int64_t value_head_dim;                   // Dv, likewise
  std::int64_t window_left = kUnlimitedWindow;   // >= 0
  std::int64_t window_right = kUnlimitedWindow;  // >= 0; 0 = causal
  std::int64_t page_tokens = 0;                  // keys and values lie in pages of so many tokens; 0: dense

  constexpr bool IsPaged() const { return page_tokens > 0; }
  constexpr std::int64_t GroupHeads() const { return query_heads / kv_heads; }
};

// One launch. All pointers are memory of the device that runs it; arrays are dense unless a stride says otherwise. Inputs are
// never written; every output element of every sequence is. Workspace comes uninitialised and holds garbage afterwards.
struct AttentionParams {
  AttentionShape shape;
  float scale;
  float logit_soft_cap = 0;  // 0 = none

  const Sequence* sequences;  // [num_sequences]
  const void* query;          // [query tokens, Hq, D]
  const void* key;            // [key tokens, Hkv, D]; paged: [num_pages, page_tokens, Hkv, D]
  const void* value;          // [key tokens, Hkv, Dv]; paged: [num_pages, page_tokens, Hkv, Dv]
  // Paged: token t of a sequence lies in page block_table[key_begin + t / page_tokens], at t % page_tokens. Entries past the
  // page of the last token are never read, nor is what lies in pages past the last token. Null: dense.
  const std::int32_t* block_table = nullptr;
  const float* alibi_slopes = nullptr;  // [Hq] or null
  const float* sink_logits = nullptr;   // [Hq] or null; -inf = no sink for that head

  const float* bias = nullptr;  // [sequences or 1, Hq or 1, Sq, Sk of the batch] or null; strides of broadcast dimensions are 0
  std::int64_t bias_sequence_stride_elems = 0;
  std::int64_t bias_head_stride_elems = 0;
  std::int64_t bias_row_stride_elems = 0;

  void* output;  // [query tokens, Hq, Dv], output_data_type
  float* log_sum_exp =
      nullptr;  // element of (sequence s, head h, query i): s.lse_begin + h * lse_head_stride_elems + i; or null
  std::int64_t lse_head_stride_elems = 0;

  void* workspace = nullptr;  // plan's workspace_bytes, aligned to 64 bytes; null if that is 0
  // The plan's merge_workspace_bytes, if it has any, aligned to 64 bytes, all ones (0xff). Each launch leaves them so; one that
  // fails or is killed may not, and then they are to be filled again. Launches that run at once may not share it. Null
  // otherwise.
  void* merge_workspace = nullptr;

  const Sequence* pass_sequences = nullptr;  // a plan with a cascade: its SharedPrefixes::sequences; null otherwise
};

}  // namespace ridgeline::kernels::attention
