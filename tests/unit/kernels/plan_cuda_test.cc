// The planner's choices for CUDA devices: host code, tested without a GPU.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/flash/float32_shape.h"
#include "kernels/attention/flash/mma_shape.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/standard/standard_cuda.h"
#include "kernels/attention/visible_range.h"
#include "kernels/common/data_type.h"
#include "tests/support/attention_case.h"
#include "tests/unit/kernels/planned_problem.h"

namespace ridgeline::kernels::attention {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMaxBlocks = std::numeric_limits<std::int32_t>::max();
constexpr int kMaxBlocksPerSm = 2;
// As many multiprocessors as an H200 has, but none of its instructions, and no room for the rings of the decode kernel: all
// goes to the generic kernels.
constexpr CudaLimits kGeneric = {.compute_capability = 80, .num_sms = 132, .shared_memory_bytes_per_block = 16 << 10};

struct Problem : PlannedProblem {
  std::int64_t QueryTokens() const {
    return sequences.empty() ? 0 : sequences.back().query_begin + sequences.back().query_tokens;
  }
  AttentionPlan Plan(std::optional<Algorithm> requested = std::nullopt, const CudaLimits& limits = kGeneric) const {
    return PlanOnCuda(shape, sequences.data(), requested, limits);
  }
};

template <typename... Counts>
Problem Heads(Counts... counts) {
  return ProblemOfHeads<Problem>(counts...);
}

template <typename... Counts>
Problem Dense(Counts... counts) {
  return DenseProblemOf<Problem>(counts...);
}

// Keys that the tile of rows [begin, begin + tile_rows) sees.
std::int64_t VisibleKeys(const AttentionShape& shape, const Sequence& sequence, const TileSchedule& tiles, std::int64_t begin) {
  const std::int64_t end = std::min(begin + tiles.tile_rows, tiles.packed_heads * sequence.query_tokens);
  const VisibleRange visible(shape, sequence.query_tokens, sequence.key_tokens);
  return visible.OfQueries(begin / tiles.packed_heads, (end - 1) / tiles.packed_heads + 1).size();
}

std::int64_t KeysOfBusiestTile(const Problem& problem, const TileSchedule& tiles) {
  std::int64_t most = 0;
  for (const Sequence& sequence : problem.sequences) {
    for (std::int64_t row = 0; row < tiles.packed_heads * sequence.query_tokens; row += tiles.tile_rows) {
      most = std::max(most, VisibleKeys(problem.shape, sequence, tiles, row));
    }
  }
  return most;
}

// Tiles of one head, counted one by one.
std::vector<std::int64_t> TilesOfSequences(const Problem& problem, std::int64_t packed_heads, std::int64_t tile_rows) {
  std::vector<std::int64_t> counts;
  for (const Sequence& sequence : problem.sequences) {
    counts.push_back(0);
    for (std::int64_t row = 0; row < packed_heads * sequence.query_tokens; row += tile_rows) ++counts.back();
  }
  return counts;
}

void ExpectEveryRowOnce(const Problem& problem, const TileSchedule& tiles) {
  const std::vector<std::int64_t> counts = TilesOfSequences(problem, tiles.packed_heads, tiles.tile_rows);
  std::int64_t num_tiles = 0;
  for (const std::int64_t count : counts) num_tiles += count;
  const bool uniform = std::all_of(counts.begin(), counts.end(), [&](std::int64_t count) { return count == counts[0]; });
  EXPECT_EQ(tiles.num_sequences, problem.shape.num_sequences);
  EXPECT_EQ(tiles.num_tiles, num_tiles);
  EXPECT_EQ(tiles.tiles_per_sequence, uniform && !counts.empty() ? counts[0] : 0);
  EXPECT_EQ(tiles.heads * tiles.packed_heads, problem.shape.query_heads);
}

void ExpectSoundSplits(const Problem& problem, const AttentionPlan& plan, const CudaLimits& limits) {
  EXPECT_EQ(plan.tiles.key_splits, plan.key_splits);
  if (plan.key_splits == 1) {
    EXPECT_EQ(plan.workspace_bytes, 0);
    return;
  }
  EXPECT_LT(plan.tiles.num_tiles * plan.tiles.heads, limits.num_sms * kMaxBlocksPerSm) << "the device is busy without splits";
  // A tile's worth of keys more than exact: the planner doesn't look at each tile.
  const std::int64_t keys = KeysOfBusiestTile(problem, plan.tiles) + plan.query_block;
  EXPECT_LE(plan.key_splits, (keys + plan.key_block - 1) / plan.key_block);
  EXPECT_EQ(plan.partial_rows, problem.QueryTokens() * problem.shape.query_heads);
  EXPECT_EQ(plan.workspace_bytes, plan.key_splits * plan.partial_rows * (problem.shape.value_head_dim + 1) * 4);
  ExpectEveryRowOnce(problem, plan.merge_tiles);
  EXPECT_EQ(plan.merge_tiles.packed_heads, problem.shape.query_heads);
  EXPECT_EQ(plan.merge_tiles.key_splits, 1);
  EXPECT_LE(plan.merge_tiles.NumBlocks(), kMaxBlocks);
}

void ExpectSound(const Problem& problem, const AttentionPlan& plan, const CudaLimits& limits) {
  EXPECT_EQ(plan.algorithm, Algorithm::kFlash);
  EXPECT_EQ(plan.tiles.tile_rows, plan.query_block);
  EXPECT_EQ(plan.tiles.group_heads, problem.shape.GroupHeads());
  EXPECT_TRUE(plan.tiles.packed_heads == 1 || plan.tiles.packed_heads == problem.shape.GroupHeads());
  EXPECT_LE(plan.tiles.NumBlocks(), kMaxBlocks);
  ExpectEveryRowOnce(problem, plan.tiles);
  ExpectSoundSplits(problem, plan, limits);
}

std::string FlashName(const char* family, int head_dim, int rows, int keys, int group, std::int64_t splits) {
  char name[96];
  std::snprintf(name, sizeof(name), "flash_%s[d=%d,bq=%d,bk=%d,group=%d,splits=%lld]", family, head_dim, rows, keys, group,
                static_cast<long long>(splits));
  return name;
}

class RandomProblems {
 public:
  explicit RandomProblems(std::uint64_t seed) : random_(seed) {}

  std::int64_t Between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  Problem Next() {
    const std::int64_t kv_heads = Between(1, 9), group = Between(0, 1) == 0 ? 1 : Between(2, 80);
    constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};
    Problem problem = Heads(kv_heads * group, kv_heads, 8 * Between(1, 32), kTypes[Between(0, 2)]);
    problem.shape.value_head_dim = 8 * Between(1, 32);
    if (Between(0, 2) == 0) problem.shape.window_left = Length();
    if (Between(0, 1) == 0) problem.shape.window_right = Between(0, 1) * Length();
    const std::int64_t num_sequences = Between(0, 5);
    const bool dense = Between(0, 1) == 0;
    std::int64_t query_tokens = Length(), key_tokens = Length();
    for (std::int64_t i = 0; i < num_sequences; ++i) {
      problem.Add(query_tokens, key_tokens);
      if (!dense) query_tokens = Length(), key_tokens = Length();
    }
    return problem;
  }

 private:
  // Every order of magnitude is as likely: 0 to 65535.
  std::int64_t Length() { return Between(0, (std::int64_t{1} << Between(0, 16)) - 1); }

  std::mt19937_64 random_;
};

TEST(PlanOnCudaTest, RandomProblemsGetSoundPlans) {
  const std::uint64_t seed = support::DeriveSeed("plans on CUDA");
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  RandomProblems random(seed);
  int num_split = 0, num_packed = 0, num_ragged = 0;
  constexpr int kProblems = 2000;
  for (int i = 0; i < kProblems && !HasFailure(); ++i) {
    const Problem problem = random.Next();
    CudaLimits limits = kGeneric;
    limits.num_sms = static_cast<int>(random.Between(1, 200));
    const AttentionPlan plan = problem.Plan(std::nullopt, limits);
    SCOPED_TRACE(::testing::Message() << "problem " << i << ", seed " << seed << ", " << plan.kernel);
    ExpectSound(problem, plan, limits);
    num_split += plan.key_splits > 1 ? 1 : 0;
    num_packed += plan.tiles.packed_heads > 1 ? 1 : 0;
    num_ragged += plan.tiles.num_tiles > 0 && plan.tiles.tiles_per_sequence == 0 ? 1 : 0;
  }
  for (const int num_seen : {num_split, num_packed, num_ragged}) EXPECT_GT(num_seen, kProblems / 50);
}

TEST(PlanOnCudaTest, EveryHeadDimHasAKernelThatHoldsIt) {
  for (std::int64_t head_dim = 8; head_dim <= 256; head_dim += 8) {
    for (std::int64_t value_head_dim = 8; value_head_dim <= 256; value_head_dim += 8) {
      SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim << ", value_head_dim " << value_head_dim);
      const std::int64_t needed = std::max(head_dim, value_head_dim);
      Problem problem = Dense(1, 4096, 4096, 32, 32, head_dim);
      problem.shape.value_head_dim = value_head_dim;
      const int mma = MmaHeadDim(problem.shape), float32 = Float32HeadDim(problem.shape);
      EXPECT_NE(std::find(std::begin(kMmaHeadDims), std::end(kMmaHeadDims), mma), std::end(kMmaHeadDims));
      EXPECT_GE(mma, needed);
      for (const int built : kMmaHeadDims) EXPECT_FALSE(needed <= built && built < mma) << built << " would do";
      EXPECT_GE(float32, needed);
      const MmaShape shape = MmaShapeOf(mma);
      EXPECT_EQ(problem.Plan().kernel, FlashName("mma", mma, shape.tile_rows, shape.tile_keys, 1, 1));
      problem.shape.data_type = DataType::kFloat32;
      const Float32Shape float32_shape = Float32ShapeOf(float32);
      EXPECT_EQ(problem.Plan().kernel, FlashName("float32", float32, float32_shape.tile_rows, float32_shape.tile_keys, 1, 1));
    }
  }
}

TEST(PlanOnCudaTest, TilesCountedByHand) {
  const std::int64_t rows = MmaShapeOf(64).tile_rows;
  Problem ragged = Heads(2, 2, 64);
  for (const std::int64_t query_tokens : {std::int64_t{1}, rows, rows + 1, std::int64_t{0}}) ragged.Add(query_tokens, 8);
  EXPECT_EQ(ragged.Plan().tiles.num_tiles, 1 + 1 + 2 + 0);
  EXPECT_EQ(ragged.Plan().tiles.tiles_per_sequence, 0);
  EXPECT_EQ(ragged.Plan().tiles.NumBlocks(), 2 * 4);
  EXPECT_EQ(Dense(3, rows + 1, 8, 2, 2, 64).Plan().tiles.tiles_per_sequence, 2);
  for (const Problem& empty : {Dense(0, 8, 8, 4, 2, 64), Dense(3, 0, 8, 4, 2, 64)}) {
    EXPECT_EQ(empty.Plan().tiles.NumBlocks(), 0);
    ExpectSound(empty, empty.Plan(), kGeneric);
  }
}

TEST(PlanOnCudaTest, PacksAGroupWhereQueriesAreFew) {
  EXPECT_EQ(Dense(1, 1, 4096, 32, 8, 128).Plan().tiles.packed_heads, 4);
  EXPECT_EQ(Dense(64, 1, 1024, 32, 8, 128, DataType::kFloat32).Plan().tiles.packed_heads, 4);
  EXPECT_EQ(Dense(1, 16, 4096, 71, 1, 64).Plan().tiles.packed_heads, 71);
  EXPECT_EQ(Dense(1, 4096, 4096, 32, 8, 128).Plan().tiles.packed_heads, 1);
  EXPECT_EQ(Dense(1, 1, 4096, 8, 8, 128).Plan().tiles.packed_heads, 1);
}

TEST(PlanOnCudaTest, SplitsKeysWhereTheDeviceWouldIdle) {
  const AttentionPlan decode = Dense(1, 1, 32768, 32, 8, 128).Plan();
  EXPECT_EQ(decode.tiles.num_tiles * decode.tiles.heads, 8);
  EXPECT_GE(decode.tiles.NumBlocks(), kGeneric.num_sms) << decode.kernel;
  EXPECT_LE(decode.tiles.NumBlocks(), kGeneric.num_sms * kMaxBlocksPerSm) << decode.kernel << ": a second wave";
  const MmaShape shape = MmaShapeOf(128);
  EXPECT_EQ(decode.kernel, FlashName("mma", 128, shape.tile_rows, shape.tile_keys, 4, decode.key_splits));
  EXPECT_EQ(Dense(64, 1, 32768, 32, 8, 128).Plan().key_splits, 1);
  EXPECT_EQ(Dense(1, 32768, 32768, 32, 8, 128).Plan().key_splits, 1);
  EXPECT_EQ(Dense(1, 1, shape.tile_keys, 32, 8, 128).Plan().key_splits, 1) << "one block of keys";
}

TEST(PlanOnCudaTest, MasksLimitTheSplits) {
  Problem window = Dense(1, 1, 32768, 32, 8, 128);
  window.shape.window_left = 100;
  window.shape.window_right = 0;
  EXPECT_EQ(window.Plan().key_splits, 1);
  window.shape.window_left = 4095;
  EXPECT_GT(window.Plan().key_splits, 1);
  EXPECT_LE(window.Plan().key_splits, 4096 / MmaShapeOf(128).tile_keys);

  Problem prefill = Dense(1, 4096, 4096, 1, 1, 128);  // few tiles, each of which sees its own neighbourhood alone
  EXPECT_GT(prefill.Plan().key_splits, 1);
  prefill.shape.window_left = prefill.shape.window_right = 32;
  EXPECT_EQ(prefill.Plan().key_splits, 1);

  Problem causal = Dense(1, 128, 8, 1, 1, 128);
  causal.shape.window_right = 0;
  EXPECT_EQ(causal.Plan().key_splits, 1);
}

// Whatever the number of keys: it depends on queries alone, once there are keys enough for all splits.
TEST(PlanOnCudaTest, WorkspaceDoesNotGrowWithKeys) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    const std::int64_t workspace_bytes = Dense(1, 1, 1 << 17, 32, 8, 128, type).Plan().workspace_bytes;
    EXPECT_GT(workspace_bytes, 0);
    for (int log2_keys = 18; log2_keys <= 29; ++log2_keys) {
      EXPECT_EQ(Dense(1, 1, std::int64_t{1} << log2_keys, 32, 8, 128, type).Plan().workspace_bytes, workspace_bytes);
    }
  }
  // One output and one log-sum-exp for each row, at most as often as blocks run together: linear in the queries.
  for (std::int64_t tokens = 1; tokens <= 1 << 20; tokens *= 2) {
    const AttentionPlan plan = Dense(1, tokens, tokens, 8, 8, 64).Plan();
    const std::int64_t blocks = plan.tiles.NumBlocks();
    if (plan.key_splits > 1) {
      EXPECT_LE(plan.workspace_bytes, blocks * plan.query_block * 65 * 4) << tokens;
    }
  }
}

TEST(PlanOnCudaTest, WhatKernelsCannotCountTakesMoreThanAnyMemory) {
  constexpr std::int64_t kLongest = kMaxIntTokens;
  EXPECT_EQ(Dense(1, kLongest, kLongest, 1, 1, 8).Plan().workspace_bytes, 0);
  for (const std::int64_t tokens : {kLongest + 1, std::int64_t{1} << 32, kMax}) {
    for (const DataType type : {DataType::kFloat32, DataType::kFloat16}) {
      EXPECT_EQ(Dense(1, tokens, 1, 8, 1, 8, type).Plan().workspace_bytes, kMax) << tokens;
      EXPECT_EQ(Dense(1, 1, tokens, 8, 1, 8, type).Plan().workspace_bytes, kMax) << tokens;
    }
  }
  const Problem largest = Dense((1 << 15) - 1, 1, 1, 1 << 16, 1 << 16, 8);  // a grid of 2^31 - 2^16 blocks
  EXPECT_EQ(largest.Plan().workspace_bytes, 0);
  EXPECT_LE(largest.Plan().tiles.NumBlocks(), kMaxBlocks);
  EXPECT_EQ(Dense(1 << 15, 1, 1, 1 << 16, 1 << 16, 8).Plan().workspace_bytes, kMax);
}

TEST(PlanOnCudaTest, PacksNoMoreRowsThanKernelsCount) {
  Problem problem = Heads(8, 1, 8);
  problem.Add(1 << 28, 1);
  for (int i = 0; i < 400'000; ++i) problem.Add(1, 1);  // for which packing would pay
  const AttentionPlan plan = problem.Plan();
  EXPECT_EQ(plan.tiles.packed_heads, 1);
  EXPECT_EQ(plan.workspace_bytes, 0);
  problem.sequences[0].query_tokens = 1 << 20;
  EXPECT_EQ(problem.Plan().tiles.packed_heads, 8);
}

TEST(PlanOnCudaTest, SaysWhichSequenceIsTooLong) {
  Problem problem = Heads(1, 1, 8);
  problem.Add(kMaxIntTokens, kMaxIntTokens);
  EXPECT_EQ(WhyNotOnCuda(problem.shape, problem.sequences.data()), "");
  problem.Add(1, kMaxIntTokens + 1);
  EXPECT_THAT(WhyNotOnCuda(problem.shape, problem.sequences.data()), HasSubstr("sequence 1 has 536870913 key tokens"));
  problem.sequences[0].query_tokens = kMaxIntTokens + 2;
  EXPECT_THAT(WhyNotOnCuda(problem.shape, problem.sequences.data()), HasSubstr("sequence 0 has 536870914 query tokens"));
}

TEST(PlanOnCudaTest, SaysWhichSequenceLiesTooFar) {
  Problem problem = Heads(1, 1, 8);
  problem.Add(1, 10);
  problem.sequences[0].key_begin = (std::int64_t{1} << 32) - 10;
  EXPECT_EQ(WhyNotOnCuda(problem.shape, problem.sequences.data()), "");
  ++problem.sequences[0].key_begin;
  EXPECT_THAT(WhyNotOnCuda(problem.shape, problem.sequences.data()),
              HasSubstr("sequence 0 has 4294967297 key tokens in the batch"));
  problem.shape.page_tokens = 16;  // key_begin counts pages then
  EXPECT_EQ(WhyNotOnCuda(problem.shape, problem.sequences.data()), "");
}

TEST(PlanOnCudaTest, ObeysTheRequestAndSaysWhy) {
  const Problem problem = Dense(2, 4096, 4096, 4, 4, 64, DataType::kFloat32);  // S: 2 * 4 * 4096 * 4096 * 4 bytes
  const AttentionPlan chosen = problem.Plan();
  EXPECT_EQ(chosen.algorithm, Algorithm::kFlash);
  EXPECT_THAT(chosen.reason, HasSubstr("512 MiB"));
  const AttentionPlan flash = problem.Plan(Algorithm::kFlash);
  EXPECT_EQ(flash.kernel, chosen.kernel);
  EXPECT_THAT(flash.reason, HasSubstr("request"));
  const AttentionPlan standard = problem.Plan(Algorithm::kStandard);
  EXPECT_EQ(standard.algorithm, Algorithm::kStandard);
  EXPECT_THAT(standard.kernel, StartsWith("standard_cuda["));
  EXPECT_THAT(standard.reason, HasSubstr("request"));
  EXPECT_EQ(standard.workspace_bytes, StandardWorkspaceBytesOnCuda(problem.shape, problem.sequences.data()));
  EXPECT_EQ(standard.key_splits, 1);
  const Problem endless = Dense(1, kMax / 2, kMax / 2, 4, 4, 64);
  EXPECT_EQ(endless.Plan(Algorithm::kStandard).workspace_bytes, kMax);
  EXPECT_THAT(endless.Plan().reason, HasSubstr("8 EiB or more"));
}

}  // namespace
}  // namespace ridgeline::kernels::attention
