// When the decode kernel is chosen, and how it is set up: host code, tested without a GPU.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/decode/decode_plan_cuda.h"
#include "kernels/attention/decode/decode_shape.h"
#include "kernels/attention/plan.h"
#include "kernels/common/data_type.h"

namespace ridgeline::kernels::attention {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CudaLimits kH200 = {.compute_capability = 90,
                              .num_sms = 132,
                              .shared_memory_bytes_per_sm = 228 << 10,
                              .shared_memory_bytes_per_block = 227 << 10,
                              .l2_cache_bytes = 50 << 20};
constexpr CudaLimits kSmall = {.compute_capability = 86,
                               .num_sms = 28,
                               .shared_memory_bytes_per_sm = 100 << 10,
                               .shared_memory_bytes_per_block = 99 << 10,
                               .l2_cache_bytes = 3 << 20};

AttentionShape Shape(std::int64_t num_sequences, std::int64_t group, std::int64_t kv_heads, std::int64_t head_dim,
                     std::int64_t page_tokens = 16) {
  return {.data_type = DataType::kBFloat16,
          .output_data_type = DataType::kBFloat16,
          .num_sequences = num_sequences,
          .query_heads = group * kv_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .value_head_dim = head_dim,
          .page_tokens = page_tokens};
}

std::vector<Sequence> Sequences(const AttentionShape& shape, std::int64_t query_tokens, std::int64_t key_tokens = 1000) {
  std::vector<Sequence> sequences(shape.num_sequences);
  for (Sequence& sequence : sequences) {
    sequence.query_tokens = query_tokens;
    sequence.key_tokens = key_tokens;
  }
  return sequences;
}

std::string WhyNot(const AttentionShape& shape, std::int64_t query_tokens = 1, const CudaLimits& limits = kH200) {
  return WhyNotDecode(shape, Sequences(shape, query_tokens).data(), limits);
}

AttentionPlan Plan(const AttentionShape& shape, std::int64_t query_tokens = 1, const CudaLimits& limits = kH200) {
  return PlanOnCuda(shape, Sequences(shape, query_tokens).data(), std::nullopt, limits);
}

TEST(DecodePlanCudaTest, EveryHeadDimAndGroupOfOneQuery) {
  for (const CudaLimits& limits : {kH200, kSmall}) {
    for (std::int64_t head_dim = 8; head_dim <= 256; head_dim += 8) {
      for (const std::int64_t group : {1, 4, 5, 6, 7, 8, 16}) {
        const AttentionShape shape = Shape(3, group, 8, head_dim);
        ASSERT_THAT(WhyNot(shape, 1, limits), IsEmpty()) << head_dim << " " << group;
        const DecodeSchedule decode = Plan(shape, 1, limits).decode;
        EXPECT_GE(decode.head_dim, head_dim);
        EXPECT_EQ(decode.rows, group);
        EXPECT_EQ(decode.num_blocks, limits.num_sms);
        EXPECT_LE(DecodeSharedBytes(decode.head_dim, 1 << decode.warps_log2, decode.rows),
                  limits.shared_memory_bytes_per_block);
      }
    }
  }
}

TEST(DecodePlanCudaTest, RowsAreQueriesTimesGroup) {
  const AttentionShape shape = Shape(2, 4, 8, 128);
  EXPECT_EQ(Plan(shape, 4).decode.rows, 16);
  EXPECT_EQ(Plan(shape, 5).decode.num_blocks, 0);
  EXPECT_EQ(WhyNot(shape, 5), "20 packed rows of a KV head; decode takes 16");
  EXPECT_EQ(WhyNot(shape, 0), "no query tokens");
}

TEST(DecodePlanCudaTest, OtherKernelsTakeTheRest) {
  AttentionShape float32 = Shape(2, 4, 8, 128);
  float32.data_type = DataType::kFloat32;
  EXPECT_EQ(WhyNot(float32), "decode takes 16-bit types");
  EXPECT_THAT(WhyNot(Shape(1, 1, std::int64_t{1} << 20, 256, 256)), HasSubstr("page"));
  const AttentionShape shape = Shape(2, 4, 8, 128);
  const std::vector<Sequence> sequences = Sequences(shape, 1);
  EXPECT_EQ(PlanOnCuda(shape, sequences.data(), Algorithm::kStandard, kH200).decode.num_blocks, 0);
  EXPECT_EQ(PlanOnCuda(shape, sequences.data(), Algorithm::kFlash, kH200).kernel, "decode_cuda[d=128,heads=8,rows=4]");
}

TEST(DecodePlanCudaTest, DenseKeysCountAsPagesOfWholeTiles) {
  for (const auto& [page_tokens, divisor] : {std::pair(0, 16), std::pair(1, 1), std::pair(16, 16), std::pair(24, 24)}) {
    const DecodeSchedule decode = Plan(Shape(2, 4, 8, 128, page_tokens)).decode;
    EXPECT_GT(decode.num_blocks, 0) << page_tokens;
    EXPECT_EQ(decode.page_tokens.divisor(), divisor);
  }
}

// A captured launch serves other lengths, so the plan may not know them.
TEST(DecodePlanCudaTest, LengthsChangeNothing) {
  const AttentionShape shape = Shape(8, 4, 8, 128);
  AttentionPlan plans[2] = {};
  for (const int i : {0, 1}) PlanDecodeOnCuda(shape, Sequences(shape, 1, i == 0 ? 3 : 1 << 20).data(), kH200, plans[i]);
  EXPECT_EQ(plans[0].kernel, plans[1].kernel);
  EXPECT_EQ(plans[0].merge_workspace_bytes, plans[1].merge_workspace_bytes);
  EXPECT_EQ(plans[0].decode.large_tiles, plans[1].decode.large_tiles);
  EXPECT_EQ(plans[0].decode.aligned_tiles, plans[1].decode.aligned_tiles);
  EXPECT_EQ(plans[0].decode.fitting_tiles, plans[1].decode.fitting_tiles);
  EXPECT_EQ(plans[0].decode.kept_tiles, plans[1].decode.kept_tiles);
}

// A tile is 16 keys and values of all KV heads, 64 KB here.
TEST(DecodePlanCudaTest, KeysAndValuesLeaveRoomInTheCache) {
  const DecodeSchedule decode = Plan(Shape(8, 4, 8, 128)).decode;
  EXPECT_LT(decode.fitting_tiles << 16, kH200.l2_cache_bytes);
  EXPECT_GT(decode.fitting_tiles << 16, kH200.l2_cache_bytes / 2);
  EXPECT_LT(decode.kept_tiles, decode.fitting_tiles);
  EXPECT_GT(decode.kept_tiles, 0);
}

// A causal limit hides nothing from one query, a window may.
TEST(DecodePlanCudaTest, OnlyMasksThatHideSomethingCost) {
  AttentionShape shape = Shape(2, 4, 8, 128);
  shape.window_right = 0;
  EXPECT_FALSE(Plan(shape, 1).decode.hides_keys);
  EXPECT_TRUE(Plan(shape, 2).decode.hides_keys);
  shape.window_left = 100;
  EXPECT_TRUE(Plan(shape, 1).decode.hides_keys);
}

TEST(DecodePlanCudaTest, HeadsOfABlockDivideHeadsAndWarps) {
  for (const std::int64_t kv_heads : {1, 2, 3, 4, 6, 8, 16, 24, 128}) {
    for (const std::int64_t num_sequences : {1, 8, 40, 500}) {
      const DecodeSchedule decode = Plan(Shape(num_sequences, 2, kv_heads, 128)).decode;
      for (const DecodeSchedule::Heads& heads : {decode.large, decode.uneven, decode.apart}) {
        EXPECT_EQ(heads.head_groups << heads.heads_log2, kv_heads);
        EXPECT_LE(heads.heads_log2, decode.warps_log2);
        EXPECT_LE(heads.blocks_per_group * heads.head_groups * num_sequences, decode.num_blocks);
      }
    }
  }
}

TEST(DecodePlanCudaTest, HeadsOfABlockSuitLengths) {
  const auto heads = [](std::int64_t num_sequences) {
    const DecodeSchedule decode = Plan(Shape(num_sequences, 4, 8, 128)).decode;
    return std::vector<int>{1 << decode.apart.heads_log2, 1 << decode.uneven.heads_log2, 1 << decode.large.heads_log2};
  };
  EXPECT_THAT(heads(1), ElementsAre(1, 4, 8)) << "parts to merge are small";
  EXPECT_THAT(heads(32), ElementsAre(2, 4, 8));
  EXPECT_THAT(heads(128), ElementsAre(8, 8, 8)) << "little is to be merged";
}

TEST(DecodePlanCudaTest, NoPlanNeedsMoreThanTheMostMergeWorkspace) {
  for (const CudaLimits& limits : {kH200, kSmall}) {
    std::int64_t most = 0;
    for (const std::int64_t head_dim : kDecodeHeadDims) {
      for (std::int64_t group = 1; group <= 16; ++group) {
        for (const std::int64_t kv_heads : {1, 4, 8, 64}) {
          most = std::max(most, Plan(Shape(200, group, kv_heads, head_dim), 1, limits).merge_workspace_bytes);
        }
      }
    }
    EXPECT_LE(most, MostMergeWorkspaceBytes(limits));
    EXPECT_GT(most, MostMergeWorkspaceBytes(limits) / 2);
  }
}

}  // namespace
}  // namespace ridgeline::kernels::attention
