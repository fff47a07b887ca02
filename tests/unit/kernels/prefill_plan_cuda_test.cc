// What the Hopper prefill kernel takes, when it is chosen, and how it divides a launch: host code, tested without a GPU.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/prefill_sm90/prefill_plan_cuda.h"
#include "kernels/attention/prefill_sm90/prefill_schedule.h"
#include "kernels/attention/prefill_sm90/prefill_shape.h"
#include "kernels/attention/visible_range.h"
#include "kernels/common/data_type.h"
#include "tests/unit/kernels/planned_problem.h"

namespace ridgeline::kernels::attention {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr CudaLimits kH200 = {.compute_capability = 90, .num_sms = 132};

struct Problem : PlannedProblem {
  std::string WhyNot(const CudaLimits& limits = kH200) const { return WhyNotPrefill(shape, sequences.data(), limits); }
  bool Preferred() const { return WhyNot().empty() && PrefersPrefill(shape, sequences.data(), kH200); }
  AttentionPlan Plan() const {
    AttentionPlan plan = {};
    PlanPrefillOnCuda(shape, sequences.data(), kH200, plan);
    return plan;
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

TEST(PrefillPlanTest, EveryHeadDimHasTilesThatHoldIt) {
  for (std::int64_t head_dim = 8; head_dim <= 256; head_dim += 8) {
    for (std::int64_t value_head_dim = 8; value_head_dim <= 256; value_head_dim += 8) {
      for (const std::int64_t tokens : {512, 4096}) {
        Problem problem = Dense(1, tokens, tokens, 32, 32, head_dim);
        problem.shape.value_head_dim = value_head_dim;
        ASSERT_THAT(problem.WhyNot(), IsEmpty());
        const PrefillShape& tile = kPrefillShapes[problem.Plan().prefill.shape_idx];
        EXPECT_GE(tile.head_dim, head_dim);
        EXPECT_GE(tile.value_head_dim, value_head_dim);
      }
    }
  }
}

TEST(PrefillPlanTest, SaysWhatItDoesNotTake) {
  EXPECT_THAT(Dense(1, 512, 512, 8, 8, 128).WhyNot(), IsEmpty());
  EXPECT_THAT(Dense(1, 512, 512, 8, 8, 128).WhyNot({.compute_capability = 80, .num_sms = 132}), HasSubstr("9.0"));
  EXPECT_THAT(Dense(1, 512, 512, 8, 8, 128).WhyNot({.compute_capability = 100, .num_sms = 132}), HasSubstr("9.0"));
  Problem float32 = Dense(1, 512, 512, 8, 8, 128);
  float32.shape.data_type = DataType::kFloat32;
  EXPECT_THAT(float32.WhyNot(), HasSubstr("16-bit"));
  EXPECT_THAT(Dense(2, 0, 512, 8, 8, 128).WhyNot(), HasSubstr("fewer than 128 query tokens"));
  EXPECT_THAT(Dense(64, 127, 512, 8, 8, 128).WhyNot(), HasSubstr("fewer than 128 query tokens"));
  EXPECT_THAT(Dense(2, 512, 0, 8, 8, 128).WhyNot(), HasSubstr("no key tokens"));
  EXPECT_THAT(Dense(0, 512, 512, 8, 8, 128).WhyNot(), HasSubstr("fewer than 128 query tokens"));
  EXPECT_THAT(Dense(1, kMaxIntTokens + 1, 512, 1, 1, 128).WhyNot(), HasSubstr("too many query tokens"));
  EXPECT_THAT(Dense(1, 512, kMaxIntTokens + 1, 1, 1, 128).WhyNot(), HasSubstr("too many key tokens"));
  EXPECT_THAT(Dense(1, kMaxIntTokens, 512, 1 << 10, 1, 128).WhyNot(), HasSubstr("too many tiles"));
  for (const std::int64_t page_tokens : {1, 4, 20, 100}) {
    Problem paged = Dense(1, 512, 512, 8, 8, 128);
    paged.shape.page_tokens = page_tokens;
    EXPECT_THAT(paged.WhyNot(), HasSubstr("multiple of 8")) << page_tokens;
  }
}

TEST(PrefillPlanTest, CopiesLieInOnePage) {
  for (const std::int64_t head_dim : {64, 96, 128, 192, 256}) {
    for (const std::int64_t page_tokens : {8, 16, 24, 64, 128, 256, 1000}) {
      Problem problem = Dense(1, 512, 512, 8, 8, head_dim);
      problem.shape.page_tokens = page_tokens;
      ASSERT_THAT(problem.WhyNot(), IsEmpty());
      const AttentionPlan plan = problem.Plan();
      EXPECT_EQ(page_tokens % plan.prefill.copy_keys, 0) << plan.kernel;
      EXPECT_EQ(plan.key_block % plan.prefill.copy_keys, 0) << plan.kernel;
    }
  }
}

TEST(PrefillPlanTest, TilesCountedByHand) {
  const std::int64_t rows = kPrefillShapes[kPrefill128].TileRows();
  Problem ragged = Heads(3, 3, 128);
  for (const std::int64_t query_tokens : {std::int64_t{1}, rows, rows + 1, std::int64_t{0}}) ragged.Add(query_tokens, 8);
  EXPECT_EQ(ragged.Plan().prefill.num_tiles, 3 * (1 + 1 + 2 + 0));
  EXPECT_EQ(ragged.Plan().prefill.tiles_per_head, 0) << "sequences differ";
  EXPECT_EQ(ragged.Plan().prefill.query_tokens, 2 * rows + 2);
  EXPECT_EQ(ragged.Plan().prefill.key_tokens, 4 * 8);
  const AttentionPlan dense = Dense(3, rows + 1, 8, 2, 2, 128).Plan();
  EXPECT_EQ(dense.prefill.tiles_per_head, 2);
  EXPECT_EQ(dense.prefill.num_tiles, 3 * 2 * 2);
  EXPECT_EQ(dense.prefill.stride.query_begin, rows + 1);
  EXPECT_EQ(dense.prefill.stride.key_begin, 8);
}

TEST(PrefillPlanTest, ThePlannerChoosesIt) {
  const Problem problem = Dense(4, 4096, 4096, 16, 16, 128);
  const AttentionPlan plan = PlanOnCuda(problem.shape, problem.sequences.data(), std::nullopt, kH200);
  EXPECT_THAT(plan.kernel, StartsWith("prefill_sm90["));
  EXPECT_EQ(plan.workspace_bytes, 0);
  EXPECT_GT(plan.merge_workspace_bytes, 0);
  const CudaLimits ampere = {.compute_capability = 80, .num_sms = 108};
  EXPECT_THAT(PlanOnCuda(problem.shape, problem.sequences.data(), std::nullopt, ampere).kernel, StartsWith("flash_mma["));
  const Problem few = Dense(64, 1, 4096, 16, 16, 128);
  EXPECT_THAT(PlanOnCuda(few.shape, few.sequences.data(), std::nullopt, kH200).kernel, StartsWith("decode_cuda["));
}

// Equal lengths do not make a batch uniform if its sequences lie anywhere.
TEST(PrefillPlanTest, SequencesOutOfStepAreRead) {
  Problem problem = Dense(4, 512, 512, 8, 8, 128);
  EXPECT_GT(problem.Plan().prefill.tiles_per_head, 0);
  problem.sequences[2].key_begin += 8;
  EXPECT_EQ(problem.Plan().prefill.tiles_per_head, 0);
}

TEST(PrefillPlanTest, LongestFirstWhereTilesDiffer) {
  Problem problem = Dense(1, 8192, 8192, 16, 16, 128);
  EXPECT_FALSE(problem.Plan().prefill.longest_first);
  problem.shape.window_right = 0;
  EXPECT_TRUE(problem.Plan().prefill.longest_first);
  EXPECT_EQ(problem.Plan().prefill.group_heads, 24'000'000 / (8192 * 128 * 4));
  problem.shape.window_left = 1023;
  EXPECT_FALSE(problem.Plan().prefill.longest_first) << "windows are of one length";
}

// Whatever the order: each once.
TEST(PrefillPlanTest, EveryTileIsComputedOnce) {
  for (const std::int64_t tokens : {128, 500, 1024, 2048, 5000}) {
    for (const std::int64_t sequences : {1, 3, 32}) {
      for (const std::int64_t window_right : {std::int64_t{0}, kUnlimitedWindow}) {
        Problem problem = Dense(sequences, tokens, tokens, 12, 4, 128);
        problem.shape.window_right = window_right;
        const PrefillSchedule schedule = problem.Plan().prefill;
        std::vector<int> times(schedule.num_tiles);
        for (int i = 0; i < schedule.num_tiles; ++i) {
          const TileOfHead found = TileAmongEqual(schedule, i);
          ++times.at(found.head * schedule.tiles_per_head + found.tile);
        }
        EXPECT_THAT(times, Each(1)) << sequences << " sequences of " << tokens << ", window " << window_right;
      }
    }
  }
}

TEST(PrefillPlanTest, HeadDim64HasSmallTilesForFewRows) {
  EXPECT_EQ(Dense(4, 8192, 8192, 32, 32, 64).Plan().query_block, 192);
  EXPECT_EQ(Dense(32, 512, 512, 32, 32, 64).Plan().query_block, 256);
  EXPECT_EQ(Dense(32, 700, 700, 32, 32, 64).Plan().query_block, 256);
  EXPECT_EQ(Dense(32, 129, 129, 32, 32, 64).Plan().query_block, 256) << "either kind is half empty";
  EXPECT_EQ(Dense(32, 128, 128, 32, 32, 64).Plan().query_block, 128);
  EXPECT_EQ(Dense(32, 384, 384, 32, 32, 64).Plan().query_block, 128);
  EXPECT_EQ(Dense(1, 1024, 1024, 16, 16, 64).Plan().query_block, 128) << "64 large tiles for 132 multiprocessors";
}

// So that blocks of a launch end together.
TEST(PrefillPlanTest, ShortTilesComeLast) {
  for (const std::int64_t tokens : {512, 1024, 4096}) {
    Problem problem = Dense(32, tokens, tokens, 16, 16, 128);
    problem.shape.window_right = 0;
    const PrefillSchedule schedule = problem.Plan().prefill;
    for (int i = 1; i <= 30; ++i) EXPECT_EQ(TileAmongEqual(schedule, schedule.num_tiles - i).tile, 0) << tokens;
  }
}

TEST(PrefillPlanTest, ChoosesManyQueriesAndPrintsItsTable) {
  struct Row {
    const char* what;
    Problem problem;
    bool preferred;
  };
  Problem one_long = Heads(32, 8, 128);
  one_long.Add(2048, 2048);
  for (int i = 0; i < 60; ++i) one_long.Add(1, 2048);
  const std::vector<Row> rows = {{"prefill 16 x 1k", Dense(16, 1024, 1024, 16, 16, 128), true},
                                 {"prefill 1 x 16k", Dense(1, 16384, 16384, 16, 16, 128), true},
                                 {"short prompts, many heads", Dense(8, 128, 128, 32, 8, 128), true},
                                 {"chunk of 256 on 8k keys", Dense(1, 256, 8192, 32, 8, 128), true},
                                 {"few queries of many keys", Dense(1, 128, 8192, 8, 8, 128), false},
                                 {"a short sequence", Dense(8, 100, 100, 32, 32, 128), false},
                                 {"16 queries", Dense(8, 16, 4096, 32, 8, 128), false},
                                 {"decode", Dense(64, 1, 4096, 32, 8, 128), false},
                                 {"one prompt among decodes", one_long, false}};
  std::printf("%-28s %s\n", "problem on an H200", "kernel, if it is chosen");
  for (const Row& row : rows) {
    EXPECT_EQ(row.problem.Preferred(), row.preferred) << row.what;
    const std::string kernel = row.problem.Plan().kernel;
    EXPECT_THAT(kernel, StartsWith("prefill_sm90["));
    std::printf("%-28s %s\n", row.what, row.problem.Preferred() ? kernel.c_str() : "-");
  }
}

}  // namespace
}  // namespace ridgeline::kernels::attention
