// The query rows of one work item: which query and head each is, what it sees, where its result goes.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/attention/attention.h"
#include "kernels/attention/flash/token_rows.h"
#include "kernels/attention/visible_range.h"
#include "kernels/common/float16.h"

namespace ridgeline::kernels::attention {

constexpr float ToFloat(float value) { return value; }
using kernels::ToFloat;

// Where a work item leaves its rows when the keys are split: O not yet divided by its sum, and the softmax's running state.
struct PartialRows {
  float* output = nullptr;  // [rows, Dv]; null: the item writes final results
  float* max = nullptr;     // [rows]
  float* sum = nullptr;     // [rows]

  PartialRows Skip(std::int64_t rows, std::int64_t value_head_dim) const {
    return {output + rows * value_head_dim, max + rows, sum + rows};
  }
};

struct RowBlock {
  const AttentionParams& params;
  const Sequence& sequence;
  std::int64_t sequence_idx;
  VisibleRange visible;
  std::int64_t kv_head;
  std::int64_t row_begin;  // in the sequence's rows of this KV head
  std::int64_t rows;
  KeyRange keys;  // what this item attends to
  bool has_sink;  // of a split range, the first part takes the sink
  PartialRows partial;

  std::int64_t Query(std::int64_t row) const { return (row_begin + row) / params.shape.GroupHeads(); }
  std::int64_t Head(std::int64_t row) const {
    return kv_head * params.shape.GroupHeads() + (row_begin + row) % params.shape.GroupHeads();
  }

  // The same rows for another KV head of the same item.
  RowBlock ForKvHead(std::int64_t other) const {
    RowBlock block = *this;
    block.kv_head = other;
    if (partial.output != nullptr) block.partial = partial.Skip((other - kv_head) * rows, params.shape.value_head_dim);
    return block;
  }

  // Keys that some, and that every, row of [begin, end) sees.
  KeyRange RangeOfRows(std::int64_t begin, std::int64_t end) const {
    const KeyRange range = visible.OfQueries(Query(begin), Query(end - 1) + 1);
    const std::int64_t first = std::max(range.begin, keys.begin);
    return {first, std::max(first, std::min(range.end, keys.end))};
  }
  KeyRange RangeOfEveryRow(std::int64_t begin, std::int64_t end) const {
    return visible.OfEveryQuery(Query(begin), Query(end - 1) + 1);
  }

  // Row of the bias for this row's query and head, [key_tokens]. Only if there is a bias.
  const float* Bias(std::int64_t row) const {
    return params.bias + sequence_idx * params.bias_sequence_stride_elems + Head(row) * params.bias_head_stride_elems +
           Query(row) * params.bias_row_stride_elems;
  }

  float Sink(std::int64_t row) const {
    return has_sink ? params.sink_logits[Head(row)] : -std::numeric_limits<float>::infinity();
  }

  // Element of a [tokens, heads, dim] array where the row's query or output begins, divided by dim.
  std::int64_t QueryToken(std::int64_t row) const {
    return (sequence.query_begin + Query(row)) * params.shape.query_heads + Head(row);
  }

  bool Sees(std::int64_t row, std::int64_t key) const {
    const KeyRange range = visible.OfQuery(Query(row));
    if (key < range.begin || key >= range.end) return false;
    return params.bias == nullptr || Bias(row)[key] != -std::numeric_limits<float>::infinity();
  }
};

// A matrix [rows, columns] in either order.
struct Strided {
  float* data;
  std::int64_t row_stride;
  std::int64_t column_stride;

  float& operator()(std::int64_t row, std::int64_t column) const { return data[row * row_stride + column * column_stride]; }
};

// Products with hidden keys must not happen where a value is NaN or infinite, since 0 * NaN is NaN. So such elements are 0 in
// the tile of values that was multiplied (ZeroNonFinite), and the rows that do see them get their share here, one by one. Rows
// [row_begin, row_end) of the block; probabilities [rows, keys], output(row, dim) an element to add to; values of T.
template <typename T, typename Output>
void AddNonFinite(const RowBlock& block, std::int64_t row_begin, std::int64_t row_end, KeyRange keys, Strided probabilities,
                  const Output& output) {
  const auto values = TokenRows<T>::Values(block.params, block.sequence, block.kv_head);
  for (std::int64_t key = keys.begin; key < keys.end; ++key) {
    const T* const row_of_key = values.At(key);
    for (std::int64_t dim = 0; dim < block.params.shape.value_head_dim; ++dim) {
      const float value = ToFloat(row_of_key[dim]);
      if (std::isfinite(value)) continue;
      for (std::int64_t row = row_begin; row < row_end; ++row) {
        if (block.Sees(row, key)) output(row - row_begin, dim) += probabilities(row - row_begin, key - keys.begin) * value;
      }
    }
  }
}

template <typename T>
void ZeroNonFinite(T* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(ToFloat(values[i]))) values[i] = T{};
  }
}

}  // namespace ridgeline::kernels::attention
