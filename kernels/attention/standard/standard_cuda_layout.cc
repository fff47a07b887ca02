#include "kernels/attention/standard/standard_cuda_layout.h"

#include <cstdint>
#include <limits>

#include "kernels/attention/standard/standard_cuda.h"
#include "kernels/common/data_type.h"
#include "kernels/common/saturating.h"

namespace ridgeline::kernels::attention {
namespace {

constexpr std::int64_t kAlignment = 64;

// The next multiple of kAlignment, or INT64_MAX.
std::int64_t AlignUp(std::int64_t bytes) {
  const std::int64_t padded = SaturatingAdd(bytes, kAlignment - 1);
  return padded == std::numeric_limits<std::int64_t>::max() ? padded : padded - padded % kAlignment;
}

}  // namespace

StandardCudaLayout LayOutStandardOnCuda(const AttentionShape& shape, const Sequence* sequences) {
  std::int64_t query_tokens = 0;
  std::int64_t key_tokens = 0;
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) {
    query_tokens = SaturatingAdd(query_tokens, sequences[i].query_tokens);
    key_tokens = SaturatingAdd(key_tokens, sequences[i].key_tokens);
    pairs = SaturatingAdd(pairs, SaturatingMultiply({sequences[i].query_tokens, ScoreRowElems(sequences[i].key_tokens)}));
  }
  const bool keeps_probabilities = shape.data_type != DataType::kFloat32;
  const bool keeps_product = ProductType(shape) != shape.output_data_type;
  const std::int64_t score_elems = SaturatingMultiply({pairs, shape.query_heads});

  StandardCudaLayout layout;
  layout.scores = 0;
  layout.probabilities = AlignUp(SaturatingMultiply({score_elems, std::int64_t{sizeof(float)}}));
  const std::int64_t probability_bytes =
      keeps_probabilities ? SaturatingMultiply({score_elems, ElementBytes(shape.data_type)}) : 0;
  layout.product = AlignUp(SaturatingAdd(layout.probabilities, probability_bytes));
  const std::int64_t product_bytes =
      keeps_product ? SaturatingMultiply({query_tokens, shape.query_heads, shape.value_head_dim, std::int64_t{sizeof(float)}})
                    : 0;
  layout.key = AlignUp(SaturatingAdd(layout.product, product_bytes));
  const std::int64_t gathered_bytes =
      shape.IsPaged() ? SaturatingMultiply({key_tokens, shape.kv_heads, ElementBytes(shape.data_type)}) : 0;
  layout.value = AlignUp(SaturatingAdd(layout.key, SaturatingMultiply({gathered_bytes, shape.head_dim})));
  layout.total_bytes = AlignUp(SaturatingAdd(layout.value, SaturatingMultiply({gathered_bytes, shape.value_head_dim})));
  if (!keeps_probabilities) layout.probabilities = layout.scores;
  return layout;
}

std::int64_t SequenceRuns::KeyStride(const Sequence& last, const Sequence& next) const {
  return shape_.IsPaged() ? last.key_tokens : next.key_begin - last.key_begin;
}

bool SequenceRuns::Continues(const SequenceRun& run, const Sequence& last, const Sequence& next) const {
  if (next.query_tokens != run.query_tokens || next.key_tokens != run.key_tokens) return false;
  return run.count == 1 ||
         (next.query_begin - last.query_begin == run.query_stride_tokens && KeyStride(last, next) == run.key_stride_tokens);
}

bool SequenceRuns::Next(SequenceRun& run) {
  if (next_sequence_ == shape_.num_sequences) return false;
  const Sequence* last = &sequences_[next_sequence_];
  run = {.first_sequence = next_sequence_,
         .count = 1,
         .query_tokens = last->query_tokens,
         .key_tokens = last->key_tokens,
         .query_stride_tokens = 0,
         .first_key_token = shape_.IsPaged() ? next_gathered_token_ : last->key_begin,
         .key_stride_tokens = 0,
         .first_score = next_score_,
         .first_product_token = next_product_token_};
  for (++next_sequence_; next_sequence_ < shape_.num_sequences; ++next_sequence_, ++last, ++run.count) {
    const Sequence& next = sequences_[next_sequence_];
    if (!Continues(run, *last, next)) break;
    run.query_stride_tokens = next.query_begin - last->query_begin;
    run.key_stride_tokens = KeyStride(*last, next);
  }
  next_score_ += run.count * shape_.query_heads * run.query_tokens * ScoreRowElems(run.key_tokens);
  next_product_token_ += run.count * run.query_tokens;
  next_gathered_token_ += run.count * run.key_tokens;
  return true;
}

std::int64_t StandardWorkspaceBytesOnCuda(const AttentionShape& shape, const Sequence* sequences) {
  return LayOutStandardOnCuda(shape, sequences).total_bytes;
}

}  // namespace ridgeline::kernels::attention
