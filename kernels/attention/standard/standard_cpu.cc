// Legend as in attention.h. Three passes over the whole problem, one after the other; 16-bit inputs are widened first, and keys
// and values in pages gathered:
//
//   Q, K ──sgemm──► S ──softmax, in place──► P
//                                         P, V ──sgemm──► output
//
// A task of any pass is one block of rows of S: of one head of one sequence.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/attention/standard/score_rows.h"
#include "kernels/attention/standard/standard.h"
#include "kernels/attention/standard/standard_layout.h"
#include "kernels/attention/visible_range.h"
#include "kernels/common/blas_check.h"
#include "kernels/common/convert.h"
#include "kernels/common/rounding.h"

namespace ridgeline::kernels::attention {
namespace {

// sgemm packs the whole of K or V for each block of rows: few rows waste that work, many leave cores idle.
constexpr std::int64_t kMinBlockRows = 64;
constexpr std::int64_t kMaxBlockRows = 256;
constexpr std::int64_t kTasksPerSlot = 4;

// Of one task of CopyInputs.
constexpr std::int64_t kCopiedElements = 64 << 10;

// Rows [row_begin, row_begin + rows) of S of one head.
struct Block {
  std::int64_t sequence_idx;
  std::int64_t head;
  std::int64_t row_begin;
  std::int64_t rows;
};

class StandardAttention {
 public:
  StandardAttention(const AttentionParams& params, int num_slots);

  void CopyInputs(Executor& executor) const;
  void MultiplyQueryKey(Executor& executor) const;
  void SoftmaxRows(Executor& executor) const;
  void MultiplyValue(Executor& executor) const;

 private:
  // Query, key or value: the caller's tensor, and its float32 copy, which packs the sequences without gaps.
  struct Input {
    const void* given;
    float* copy;               // null: the tensor is read where it lies
    std::int64_t token_elems;  // heads * dim
    std::int64_t dim;
    std::int64_t Sequence::*first_given;        // token; paged: entry of the block table
    std::int64_t StandardSlice::*first_copied;  // token
    std::int64_t page_tokens;                   // 0: dense
  };

  // Tokens of the caller's tensor that lie side by side.
  struct GivenTokens {
    std::int64_t begin;
    std::int64_t count;
  };

  void FillSlices(int num_slots);
  template <typename Body>
  void ForEachBlock(Executor& executor, const Body& body) const;
  // The sequence whose slice holds position `position` of what `first` counts.
  std::int64_t FindSequence(std::int64_t StandardSlice::*first, std::int64_t position) const;
  void Copy(const Input& input, Executor& executor) const;
  void CopyTokens(const Input& input, std::int64_t begin, std::int64_t end) const;
  // Where `count` tokens of a sequence lie from its token `token` on, or as many of them as its page still holds.
  GivenTokens FindGiven(const Input& input, std::int64_t sequence_idx, std::int64_t token, std::int64_t count) const;
  void SoftmaxBlock(const Block& block) const;
  void MultiplyValueOfBlock(const Block& block) const;

  float* Part(std::int64_t offset_bytes) const { return reinterpret_cast<float*>(workspace_ + offset_bytes); }
  // One head of a sequence in float32, at its token 0; rows are token_elems apart.
  const float* Head(const Input& input, std::int64_t sequence_idx, std::int64_t head) const;
  float* Scores(const Block& block) const;  // [rows, Sk]

  const AttentionParams& params_;
  const AttentionShape& shape_;
  const StandardLayout layout_;
  std::byte* const workspace_;
  StandardSlice* const slices_;  // [num_sequences + 1]
  const Input query_;
  const Input key_;
  const Input value_;
  std::int64_t block_rows_ = 0;
};

StandardAttention::StandardAttention(const AttentionParams& params, int num_slots)
    : params_(params),
      shape_(params.shape),
      layout_(LayOutStandard(params.shape, params.sequences)),
      workspace_(static_cast<std::byte*>(params.workspace)),
      slices_(reinterpret_cast<StandardSlice*>(workspace_ + layout_.slices)),
      query_({.given = params.query,
              .copy = shape_.data_type != DataType::kFloat32 ? Part(layout_.query_or_output) : nullptr,
              .token_elems = shape_.query_heads * shape_.head_dim,
              .dim = shape_.head_dim,
              .first_given = &Sequence::query_begin,
              .first_copied = &StandardSlice::first_query,
              .page_tokens = 0}),
      key_({.given = params.key,
            .copy = CopiesKeyValue(shape_) ? Part(layout_.key) : nullptr,
            .token_elems = shape_.kv_heads * shape_.head_dim,
            .dim = shape_.head_dim,
            .first_given = &Sequence::key_begin,
            .first_copied = &StandardSlice::first_key,
            .page_tokens = shape_.page_tokens}),
      value_({.given = params.value,
              .copy = CopiesKeyValue(shape_) ? Part(layout_.value) : nullptr,
              .token_elems = shape_.kv_heads * shape_.value_head_dim,
              .dim = shape_.value_head_dim,
              .first_given = &Sequence::key_begin,
              .first_copied = &StandardSlice::first_key,
              .page_tokens = shape_.page_tokens}) {
  FillSlices(num_slots);
}

void StandardAttention::FillSlices(int num_slots) {
  std::int64_t rows = 0;
  for (std::int64_t i = 0; i < shape_.num_sequences; ++i) rows += params_.sequences[i].query_tokens * shape_.query_heads;
  block_rows_ = std::clamp(CeilDivide(rows, kTasksPerSlot * num_slots), kMinBlockRows, kMaxBlockRows);

  StandardSlice slice = {};
  for (std::int64_t i = 0; i < shape_.num_sequences; ++i) {
    slices_[i] = slice;
    const Sequence& sequence = params_.sequences[i];
    slice.first_query += sequence.query_tokens;
    slice.first_key += sequence.key_tokens;
    slice.first_score += shape_.query_heads * sequence.query_tokens * sequence.key_tokens;
    slice.first_task += shape_.query_heads * CeilDivide(sequence.query_tokens, block_rows_);
  }
  slices_[shape_.num_sequences] = slice;
}

std::int64_t StandardAttention::FindSequence(std::int64_t StandardSlice::*first, std::int64_t position) const {
  const auto begins_after = [first](std::int64_t value, const StandardSlice& slice) { return value < slice.*first; };
  return std::upper_bound(slices_, slices_ + shape_.num_sequences + 1, position, begins_after) - slices_ - 1;
}

template <typename Body>
void StandardAttention::ForEachBlock(Executor& executor, const Body& body) const {
  const std::int64_t num_blocks = slices_[shape_.num_sequences].first_task;
  executor.ParallelFor(num_blocks, [&](std::int64_t task_idx, int /*slot*/) {
    const std::int64_t sequence_idx = FindSequence(&StandardSlice::first_task, task_idx);
    const std::int64_t query_tokens = params_.sequences[sequence_idx].query_tokens;
    const std::int64_t blocks_of_head = CeilDivide(query_tokens, block_rows_);
    const std::int64_t block_idx = task_idx - slices_[sequence_idx].first_task;
    const std::int64_t row_begin = block_idx % blocks_of_head * block_rows_;
    body(Block{.sequence_idx = sequence_idx,
               .head = block_idx / blocks_of_head,
               .row_begin = row_begin,
               .rows = std::min(block_rows_, query_tokens - row_begin)});
  });
}

const float* StandardAttention::Head(const Input& input, std::int64_t sequence_idx, std::int64_t head) const {
  const float* tokens = input.copy != nullptr ? input.copy + slices_[sequence_idx].*input.first_copied * input.token_elems
                                              : static_cast<const float*>(input.given) +
                                                    params_.sequences[sequence_idx].*input.first_given * input.token_elems;
  return tokens + head * input.dim;
}

float* StandardAttention::Scores(const Block& block) const {
  const Sequence& sequence = params_.sequences[block.sequence_idx];
  return Part(layout_.scores) + slices_[block.sequence_idx].first_score +
         (block.head * sequence.query_tokens + block.row_begin) * sequence.key_tokens;
}

void StandardAttention::CopyInputs(Executor& executor) const {
  for (const Input* input : {&query_, &key_, &value_}) {
    if (input->copy != nullptr) Copy(*input, executor);
  }
}

void StandardAttention::Copy(const Input& input, Executor& executor) const {
  const std::int64_t num_tokens = slices_[shape_.num_sequences].*input.first_copied;
  const std::int64_t task_tokens = CeilDivide(kCopiedElements, input.token_elems);
  executor.ParallelFor(CeilDivide(num_tokens, task_tokens), [&](std::int64_t task_idx, int /*slot*/) {
    const std::int64_t begin = task_idx * task_tokens;
    CopyTokens(input, begin, std::min(begin + task_tokens, num_tokens));
  });
}

// Tokens [begin, end) of the copy, which may belong to several sequences.
void StandardAttention::CopyTokens(const Input& input, std::int64_t begin, std::int64_t end) const {
  const std::int64_t token_bytes = input.token_elems * ElementBytes(shape_.data_type);
  for (std::int64_t i = FindSequence(input.first_copied, begin); begin < end; ++i) {
    const std::int64_t first = slices_[i].*input.first_copied;
    const std::int64_t sequence_end = std::min(end, slices_[i + 1].*input.first_copied);
    while (begin < sequence_end) {
      const GivenTokens given = FindGiven(input, i, begin - first, sequence_end - begin);
      ConvertToFloat32(shape_.data_type, static_cast<const std::byte*>(input.given) + given.begin * token_bytes,
                       given.count * input.token_elems, input.copy + begin * input.token_elems);
      begin += given.count;
    }
  }
}

StandardAttention::GivenTokens StandardAttention::FindGiven(const Input& input, std::int64_t sequence_idx, std::int64_t token,
                                                            std::int64_t count) const {
  const std::int64_t first = params_.sequences[sequence_idx].*input.first_given;
  if (input.page_tokens == 0) return {.begin = first + token, .count = count};
  const std::int64_t page = params_.block_table[first + token / input.page_tokens];
  const std::int64_t place = token % input.page_tokens;
  return {.begin = page * input.page_tokens + place, .count = std::min(count, input.page_tokens - place)};
}

void StandardAttention::MultiplyQueryKey(Executor& executor) const {
  ForEachBlock(executor, [this](const Block& block) {
    const std::int64_t key_tokens = params_.sequences[block.sequence_idx].key_tokens;
    const float* query = Head(query_, block.sequence_idx, block.head) + block.row_begin * query_.token_elems;
    const float* key = Head(key_, block.sequence_idx, block.head / shape_.GroupHeads());
    OpenBlasSgemm(/*transpose_b=*/true, block.rows, key_tokens, shape_.head_dim, params_.scale, query, query_.token_elems, key,
                  key_.token_elems, Scores(block), key_tokens);
  });
}

void StandardAttention::SoftmaxRows(Executor& executor) const {
  ForEachBlock(executor, [this](const Block& block) { SoftmaxBlock(block); });
}

void StandardAttention::SoftmaxBlock(const Block& block) const {
  const Sequence& sequence = params_.sequences[block.sequence_idx];
  const VisibleRange visible(shape_, sequence.query_tokens, sequence.key_tokens);
  float* scores = Scores(block);
  ScoreRow row;
  row.num_keys = sequence.key_tokens;
  row.logit_soft_cap = params_.logit_soft_cap;
  if (params_.alibi_slopes != nullptr) row.alibi_slope = params_.alibi_slopes[block.head];
  if (params_.sink_logits != nullptr) row.sink_logit = params_.sink_logits[block.head];
  for (std::int64_t i = 0; i < block.rows; ++i) {
    const std::int64_t query_idx = block.row_begin + i;
    row.scores = scores + i * sequence.key_tokens;
    row.visible = visible.OfQuery(query_idx);
    row.position = visible.Position(query_idx);
    if (params_.bias != nullptr) {
      row.bias = params_.bias + block.sequence_idx * params_.bias_sequence_stride_elems +
                 block.head * params_.bias_head_stride_elems + query_idx * params_.bias_row_stride_elems;
    }
    const float log_sum_exp = SoftmaxInPlace(row);
    if (params_.log_sum_exp != nullptr) {
      params_.log_sum_exp[sequence.lse_begin + block.head * params_.lse_head_stride_elems + query_idx] = log_sum_exp;
    }
  }
}

void StandardAttention::MultiplyValue(Executor& executor) const {
  ForEachBlock(executor, [this](const Block& block) { MultiplyValueOfBlock(block); });
}

void StandardAttention::MultiplyValueOfBlock(const Block& block) const {
  const Sequence& sequence = params_.sequences[block.sequence_idx];
  const std::int64_t dim = shape_.value_head_dim;
  const std::int64_t token_elems = shape_.query_heads * dim;
  const std::int64_t block_offset = block.row_begin * token_elems + block.head * dim;
  const std::int64_t first_output = sequence.query_begin * token_elems + block_offset;
  const bool rounds_output = shape_.output_data_type != DataType::kFloat32;
  float* product = rounds_output
                       ? Part(layout_.query_or_output) + slices_[block.sequence_idx].first_query * token_elems + block_offset
                       : static_cast<float*>(params_.output) + first_output;

  const float* probabilities = Scores(block);
  const float* value = Head(value_, block.sequence_idx, block.head / shape_.GroupHeads());
  OpenBlasSgemm(/*transpose_b=*/false, block.rows, dim, sequence.key_tokens, /*alpha=*/1, probabilities, sequence.key_tokens,
                value, value_.token_elems, product, token_elems);
  // The product has multiplied hidden keys too, by 0: that is not 0 where the value is infinite or NaN.
  if (!AllFinite(product, block.rows, dim, token_elems)) {
    for (std::int64_t i = 0; i < block.rows; ++i) {
      SumVisibleValues(probabilities + i * sequence.key_tokens, sequence.key_tokens, value, value_.token_elems, dim,
                       product + i * token_elems);
    }
  }
  if (!rounds_output) return;
  std::byte* output = static_cast<std::byte*>(params_.output) + first_output * ElementBytes(shape_.output_data_type);
  for (std::int64_t i = 0; i < block.rows; ++i) {
    ConvertFromFloat32(shape_.output_data_type, product + i * token_elems, dim,
                       output + i * token_elems * ElementBytes(shape_.output_data_type));
  }
}

}  // namespace

void RunStandardOnCpu(const AttentionPlan& /*plan*/, const AttentionParams& params, Executor& executor) {
  const StandardAttention attention(params, executor.num_slots());
  attention.CopyInputs(executor);
  if (executor.cancelled()) return;
  attention.MultiplyQueryKey(executor);
  if (executor.cancelled()) return;
  attention.SoftmaxRows(executor);
  if (executor.cancelled()) return;
  attention.MultiplyValue(executor);
}

}  // namespace ridgeline::kernels::attention
