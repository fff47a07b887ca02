#include "kernels/attention/standard/standard.h"

#include <algorithm>
#include <initializer_list>

#include "kernels/attention/standard/standard_layout.h"
#include "kernels/common/saturating.h"

namespace ridgeline::kernels::attention {
namespace {

constexpr std::int64_t kAlignment = 64;

// Hands out aligned parts of the workspace one after another.
class OffsetCounter {
 public:
  // The offset of a part of as many bytes as the product of `factors`.
  std::int64_t Take(std::initializer_list<std::int64_t> factors) {
    const std::int64_t offset = end_;
    const std::int64_t padded = SaturatingAdd(SaturatingMultiply(factors), kAlignment - 1);
    end_ = SaturatingAdd(end_, padded - padded % kAlignment);
    return offset;
  }

  std::int64_t end() const { return end_; }

 private:
  std::int64_t end_ = 0;
};

}  // namespace

StandardLayout LayOutStandard(const AttentionShape& shape, const Sequence* sequences) {
  std::int64_t query_tokens = 0;
  std::int64_t key_tokens = 0;
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) {
    query_tokens = SaturatingAdd(query_tokens, sequences[i].query_tokens);
    key_tokens = SaturatingAdd(key_tokens, sequences[i].key_tokens);
    pairs = SaturatingAdd(pairs, SaturatingMultiply({sequences[i].query_tokens, sequences[i].key_tokens}));
  }
  const bool copies_query = shape.data_type != DataType::kFloat32;
  const bool copies_output = shape.output_data_type != DataType::kFloat32;
  const std::int64_t query_or_output_dim =
      std::max(copies_query ? shape.head_dim : 0, copies_output ? shape.value_head_dim : 0);
  const std::int64_t copied_key_tokens = CopiesKeyValue(shape) ? key_tokens : 0;

  OffsetCounter offsets;
  StandardLayout layout;
  layout.slices = offsets.Take({SaturatingAdd(shape.num_sequences, 1), sizeof(StandardSlice)});
  layout.query_or_output = offsets.Take({query_tokens, shape.query_heads, query_or_output_dim, sizeof(float)});
  layout.key = offsets.Take({copied_key_tokens, shape.kv_heads, shape.head_dim, sizeof(float)});
  layout.value = offsets.Take({copied_key_tokens, shape.kv_heads, shape.value_head_dim, sizeof(float)});
  layout.scores = offsets.Take({pairs, shape.query_heads, sizeof(float)});
  layout.total_bytes = offsets.end();
  return layout;
}

std::int64_t StandardWorkspaceBytes(const AttentionShape& shape, const Sequence* sequences) {
  return LayOutStandard(shape, sequences).total_bytes;
}

}  // namespace ridgeline::kernels::attention
