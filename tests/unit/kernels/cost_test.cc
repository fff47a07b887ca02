// The formulas of cost.h: counted by hand, by brute force on every small case, and at the end of int64.
#include "kernels/attention/cost.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"

namespace ridgeline::kernels::attention {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

AttentionShape Shape(std::int64_t num_sequences, std::int64_t query_heads, std::int64_t kv_heads, std::int64_t head_dim) {
  return {.data_type = DataType::kFloat32,
          .output_data_type = DataType::kFloat32,
          .num_sequences = num_sequences,
          .query_heads = query_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .value_head_dim = head_dim};
}

Sequence Tokens(std::int64_t query_tokens, std::int64_t key_tokens) {
  return {.query_begin = 0, .query_tokens = query_tokens, .key_begin = 0, .key_tokens = key_tokens, .lse_begin = 0};
}

TEST(CountVisiblePairsTest, AgreesWithBruteForceOnEverySmallCase) {
  AttentionShape shape = {};
  for (std::int64_t query_tokens = 0; query_tokens <= 9; ++query_tokens) {
    for (std::int64_t key_tokens = 0; key_tokens <= 9; ++key_tokens) {
      for (std::int64_t left = 0; left <= 12; ++left) {
        for (std::int64_t right = 0; right <= 12; ++right) {
          shape.window_left = left == 12 ? kUnlimitedWindow : left;
          shape.window_right = right == 12 ? kUnlimitedWindow : right;
          std::int64_t want = 0;
          for (std::int64_t i = 0; i < query_tokens; ++i) {
            const std::int64_t position = i + key_tokens - query_tokens;
            for (std::int64_t j = 0; j < key_tokens; ++j) {
              want += position - shape.window_left <= j && j <= position + shape.window_right ? 1 : 0;
            }
          }
          ASSERT_EQ(CountVisiblePairs(shape, query_tokens, key_tokens), want)
              << "Sq " << query_tokens << ", Sk " << key_tokens << ", window " << shape.window_left << ", "
              << shape.window_right;
        }
      }
    }
  }
}

TEST(CountVisiblePairsTest, AgreesWithHandCountsOnLargeSequences) {
  AttentionShape shape = {};
  EXPECT_EQ(CountVisiblePairs(shape, 1 << 20, 1 << 20), std::int64_t{1} << 40);
  shape.window_right = 0;
  EXPECT_EQ(CountVisiblePairs(shape, 4096, 4096), 4096 * 4097 / 2);
  // The last query sees all 6000 keys, each earlier one a key fewer.
  EXPECT_EQ(CountVisiblePairs(shape, 1000, 6000), 1000 * 6000 - 999 * 1000 / 2);
  // 5000 of 6000 queries stand before the first key.
  EXPECT_EQ(CountVisiblePairs(shape, 6000, 1000), 1000 * 1001 / 2);
  // A window of 128 keys, but for the 127 rows at the start that have fewer.
  shape.window_left = 127;
  EXPECT_EQ(CountVisiblePairs(shape, 4096, 4096), 4096 * 128 - 127 * 128 / 2);
}

TEST(CountVisiblePairsTest, SaturatesInsteadOfWrapping) {
  AttentionShape shape = {};
  EXPECT_EQ(CountVisiblePairs(shape, std::int64_t{1} << 40, std::int64_t{1} << 40), kMax);
  EXPECT_EQ(CountVisiblePairs(shape, kMax, kMax), kMax);
  shape.window_right = 0;
  shape.window_left = 0;
  EXPECT_EQ(CountVisiblePairs(shape, kMax, kMax), kMax);
  EXPECT_EQ(CountVisiblePairs(shape, std::int64_t{1} << 40, std::int64_t{1} << 40), std::int64_t{1} << 40);
}

TEST(CountCostTest, FullAttentionByHand) {
  // 2 heads, 4 x 4 pairs, D = 8: 2 * 16 * 2 * 16 operations; four tensors of 4 * 2 * 8 floats.
  const AttentionShape shape = Shape(/*num_sequences=*/1, /*query_heads=*/2, /*kv_heads=*/2, /*head_dim=*/8);
  const Sequence sequence = Tokens(4, 4);
  const Cost flash = CountCost(shape, &sequence, {}, Algorithm::kFlash);
  EXPECT_EQ(flash.flops, 1024);
  EXPECT_EQ(flash.bytes, 4 * 256);
  // S written and read, P written and read: 4 * 32 pairs * 4 bytes.
  const Cost standard = CountCost(shape, &sequence, {}, Algorithm::kStandard);
  EXPECT_EQ(standard.flops, 1024);
  EXPECT_EQ(standard.bytes, 4 * 256 + 512);
}

TEST(CountCostTest, CausalByHand) {
  AttentionShape shape = Shape(/*num_sequences=*/1, /*query_heads=*/2, /*kv_heads=*/2, /*head_dim=*/8);
  shape.window_right = 0;
  const Sequence sequence = Tokens(4, 4);  // 1 + 2 + 3 + 4 pairs
  EXPECT_EQ(CountCost(shape, &sequence, {}, Algorithm::kFlash).flops, 2 * 10 * 2 * 16);
  // The mask saves standard attention no traffic.
  EXPECT_EQ(CountCost(shape, &sequence, {}, Algorithm::kStandard).bytes, 4 * 256 + 512);
}

TEST(CountCostTest, WindowByHand) {
  AttentionShape shape = Shape(/*num_sequences=*/1, /*query_heads=*/1, /*kv_heads=*/1, /*head_dim=*/8);
  shape.window_left = 1;
  shape.window_right = 0;
  const Sequence sequence = Tokens(3, 5);  // 2 keys for each of 3 queries
  EXPECT_EQ(CountCost(shape, &sequence, {}, Algorithm::kFlash).flops, 2 * 6 * 16);
}

TEST(CountCostTest, RaggedGroupedSixteenBitByHand) {
  AttentionShape shape = Shape(/*num_sequences=*/3, /*query_heads=*/4, /*kv_heads=*/2, /*head_dim=*/16);
  shape.value_head_dim = 8;
  shape.data_type = DataType::kBFloat16;
  shape.output_data_type = DataType::kFloat32;
  const std::vector<Sequence> sequences = {Tokens(2, 3), Tokens(0, 7), Tokens(1, 1)};  // 6 + 0 + 1 pairs
  const Cost flash = CountCost(shape, sequences.data(), {.log_sum_exp = true, .bias_bytes = 1000}, Algorithm::kFlash);
  EXPECT_EQ(flash.flops, 2 * 7 * 4 * (16 + 8));
  const std::int64_t query = 3 * 4 * 16 * 2;
  const std::int64_t key = 11 * 2 * 16 * 2;
  const std::int64_t value = 11 * 2 * 8 * 2;
  const std::int64_t output = 3 * 4 * 8 * 4;
  const std::int64_t log_sum_exp = 3 * 4 * 4;
  EXPECT_EQ(flash.bytes, query + key + value + output + log_sum_exp + 1000);
  const Cost standard = CountCost(shape, sequences.data(), {.log_sum_exp = true, .bias_bytes = 1000}, Algorithm::kStandard);
  EXPECT_EQ(standard.bytes, flash.bytes + 7 * 4 * (4 + 4 + 2 + 2));
}

TEST(CountCostTest, NoSequenceCostsNothing) {
  const Cost cost = CountCost(Shape(0, 1, 1, 8), nullptr, {.log_sum_exp = true}, Algorithm::kStandard);
  EXPECT_EQ(cost.flops, 0);
  EXPECT_EQ(cost.bytes, 0);
}

TEST(CountCostTest, SaturatesInsteadOfWrapping) {
  const AttentionShape shape = Shape(/*num_sequences=*/2, /*query_heads=*/64, /*kv_heads=*/64, /*head_dim=*/256);
  const std::vector<Sequence> sequences = {Tokens(kMax, kMax), Tokens(kMax, 1)};
  const Cost cost = CountCost(shape, sequences.data(), {.bias_bytes = kMax}, Algorithm::kStandard);
  EXPECT_EQ(cost.flops, kMax);
  EXPECT_EQ(cost.bytes, kMax);
}

}  // namespace
}  // namespace ridgeline::kernels::attention
