#include "kernels/attention/cost.h"

#include <algorithm>
#include <limits>

#include "kernels/common/saturating.h"

namespace ridgeline::kernels::attention {
namespace {

// Positions reach 2^62 and their sums twice that in bits.
__extension__ using Int128 = __int128;

// Sum of clamp(x, 0, limit) over all integers x <= last.
Int128 SumOfClampedUpTo(Int128 last, Int128 limit) {
  const Int128 ramp = std::clamp<Int128>(last, 0, limit);
  return ramp * (ramp + 1) / 2 + (std::max(last, limit) - limit) * limit;
}

// Sum of clamp(x, 0, limit) over x in [first, first + count).
Int128 SumOfClamped(Int128 first, Int128 count, Int128 limit) {
  return SumOfClampedUpTo(first + count - 1, limit) - SumOfClampedUpTo(first - 1, limit);
}

std::int64_t Saturate(Int128 value) {
  return static_cast<std::int64_t>(std::min<Int128>(value, std::numeric_limits<std::int64_t>::max()));
}

}  // namespace

// VisibleRange gives query i the keys [clamp(p - window_left), clamp(p + window_right + 1)) with p = i + Sk - Sq, each clamped
// to [0, Sk]; p moves by one a query, so the ends' sums are sums over consecutive integers.
std::int64_t CountVisiblePairs(const AttentionShape& shape, std::int64_t query_tokens, std::int64_t key_tokens) {
  const Int128 first_position = Int128{key_tokens} - query_tokens;
  const Int128 ends = SumOfClamped(first_position + shape.window_right + 1, query_tokens, key_tokens);
  const Int128 begins = SumOfClamped(first_position - shape.window_left, query_tokens, key_tokens);
  return Saturate(ends - begins);
}

Cost CountCost(const AttentionShape& shape, const Sequence* sequences, const OptionalTensors& optional, Algorithm algorithm) {
  std::int64_t query_tokens = 0;
  std::int64_t key_tokens = 0;
  std::int64_t visible_pairs = 0;
  std::int64_t all_pairs = 0;
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) {
    const Sequence& sequence = sequences[i];
    query_tokens = SaturatingAdd(query_tokens, sequence.query_tokens);
    key_tokens = SaturatingAdd(key_tokens, sequence.key_tokens);
    visible_pairs = SaturatingAdd(visible_pairs, CountVisiblePairs(shape, sequence.query_tokens, sequence.key_tokens));
    all_pairs = SaturatingAdd(all_pairs, SaturatingMultiply({sequence.query_tokens, sequence.key_tokens}));
  }

  const std::int64_t input_bytes = ElementBytes(shape.data_type);
  const std::int64_t output_bytes = ElementBytes(shape.output_data_type);
  std::int64_t bytes = optional.bias_bytes;
  const auto add = [&bytes](std::initializer_list<std::int64_t> factors) {
    bytes = SaturatingAdd(bytes, SaturatingMultiply(factors));
  };
  add({query_tokens, shape.query_heads, shape.head_dim, input_bytes});
  add({key_tokens, shape.kv_heads, shape.head_dim, input_bytes});
  add({key_tokens, shape.kv_heads, shape.value_head_dim, input_bytes});
  add({query_tokens, shape.query_heads, shape.value_head_dim, output_bytes});
  if (optional.log_sum_exp) add({query_tokens, shape.query_heads, sizeof(float)});
  if (algorithm == Algorithm::kStandard) {
    constexpr std::int64_t kPasses = 2;  // written and read
    add({all_pairs, shape.query_heads, kPasses, static_cast<std::int64_t>(sizeof(float)) + input_bytes});
  }

  const std::int64_t flops = SaturatingMultiply({2, visible_pairs, shape.query_heads, shape.head_dim + shape.value_head_dim});
  return {.flops = flops, .bytes = bytes};
}

}  // namespace ridgeline::kernels::attention
