// The planner's choices over typical shapes, printed for the reader, and what must hold for each of them.
#include "kernels/attention/plan.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/standard/standard.h"
#include "kernels/common/data_type.h"

namespace ridgeline::kernels::attention {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMiB = 1 << 20;

struct PlannedCase {
  const char* name;
  std::int64_t num_sequences;
  std::int64_t query_tokens;
  std::int64_t key_tokens;
  std::int64_t query_heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  bool causal;
};

constexpr PlannedCase kCases[] = {
    {"one token", 1, 1, 1, 1, 1, 64, false},
    {"tiny", 1, 64, 64, 1, 1, 64, false},
    {"short", 1, 256, 256, 8, 8, 64, true},
    {"BERT base", 8, 512, 512, 12, 12, 64, false},
    {"GPT-2 prefill", 1, 1024, 1024, 12, 12, 64, true},
    {"SmolLM2 prefill", 1, 2048, 2048, 9, 3, 64, true},
    {"Llama 8B prefill", 1, 4096, 4096, 32, 8, 128, true},
    {"one long head", 1, 16384, 16384, 1, 1, 128, false},
    {"decode", 1, 1, 8192, 32, 8, 128, true},
    {"batched decode", 32, 1, 1024, 32, 8, 128, true},
    {"verification of 8 drafts", 4, 8, 4096, 32, 8, 128, true},
    {"multi-query", 2, 128, 2048, 71, 1, 64, true},
    {"wide heads", 1, 1024, 1024, 8, 8, 256, false},
    {"no query", 4, 0, 128, 8, 8, 64, true},
    {"no key", 4, 128, 0, 8, 8, 64, true},
    {"no sequence", 0, 128, 128, 8, 8, 64, true},
};

constexpr int kSlotCounts[] = {1, 2, 16, 128};

AttentionShape Shape(const PlannedCase& c, DataType type) {
  return {.data_type = type,
          .output_data_type = type,
          .num_sequences = c.num_sequences,
          .query_heads = c.query_heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .value_head_dim = c.head_dim,
          .window_left = kUnlimitedWindow,
          .window_right = c.causal ? 0 : kUnlimitedWindow};
}

std::vector<Sequence> Sequences(const PlannedCase& c) {
  std::vector<Sequence> sequences;
  for (std::int64_t i = 0; i < c.num_sequences; ++i) {
    sequences.push_back({.query_begin = i * c.query_tokens,
                         .query_tokens = c.query_tokens,
                         .key_begin = i * c.key_tokens,
                         .key_tokens = c.key_tokens,
                         .lse_begin = i * c.query_heads * c.query_tokens});
  }
  return sequences;
}

void ExpectSound(const AttentionPlan& plan, const PlannedCase& c) {
  EXPECT_THAT(plan.kernel, StartsWith(std::string(Name(plan.algorithm)) + "_cpu["));
  EXPECT_FALSE(plan.reason.empty());
  EXPECT_GE(plan.workspace_bytes, 0);
  if (plan.algorithm == Algorithm::kFlash) {
    EXPECT_GE(plan.query_block, 1);
    EXPECT_GE(plan.key_block, 1);
    EXPECT_GE(plan.key_splits, 1);
  } else {
    EXPECT_GE(plan.workspace_bytes, c.num_sequences * c.query_heads * c.query_tokens * c.key_tokens * 4);
  }
}

TEST(PlanOnCpuTest, PlansTypicalShapes) {
  std::printf("%-25s %5s %-34s %12s  %s\n", "shape", "slots", "kernel", "workspace", "chosen because");
  for (const PlannedCase& c : kCases) {
    for (const int num_slots : kSlotCounts) {
      const std::vector<Sequence> sequences = Sequences(c);
      const AttentionShape shape = Shape(c, DataType::kBFloat16);
      const AttentionPlan plan = PlanOnCpu(shape, sequences.data(), std::nullopt, {.num_slots = num_slots});
      std::printf("%-25s %5d %-34s %12lld  %s\n", c.name, num_slots, plan.kernel.c_str(),
                  static_cast<long long>(plan.workspace_bytes), plan.reason.c_str());
      SCOPED_TRACE(c.name);
      ExpectSound(plan, c);
    }
  }
}

TEST(PlanOnCpuTest, ObeysTheRequest) {
  for (const PlannedCase& c : kCases) {
    for (const Algorithm algorithm : {Algorithm::kStandard, Algorithm::kFlash}) {
      SCOPED_TRACE(c.name);
      const std::vector<Sequence> sequences = Sequences(c);
      const AttentionPlan plan = PlanOnCpu(Shape(c, DataType::kFloat32), sequences.data(), algorithm, {.num_slots = 4});
      EXPECT_EQ(plan.algorithm, algorithm);
      EXPECT_THAT(plan.reason, HasSubstr("request"));
      ExpectSound(plan, c);
    }
  }
}

TEST(PlanOnCpuTest, IsAPureFunction) {
  for (const PlannedCase& c : kCases) {
    SCOPED_TRACE(c.name);
    const std::vector<Sequence> sequences = Sequences(c);
    const AttentionShape shape = Shape(c, DataType::kFloat16);
    const AttentionPlan first = PlanOnCpu(shape, sequences.data(), std::nullopt, {.num_slots = 8});
    const AttentionPlan second = PlanOnCpu(shape, sequences.data(), std::nullopt, {.num_slots = 8});
    EXPECT_EQ(first.kernel, second.kernel);
    EXPECT_EQ(first.reason, second.reason);
    EXPECT_EQ(first.workspace_bytes, second.workspace_bytes);
  }
}

TEST(PlanOnCpuTest, ReasonNamesTheBytesThatStandardWouldTake) {
  const PlannedCase c = {"", 2, 4096, 4096, 4, 4, 64, false};  // S: 2 * 4 * 4096 * 4096 * 4 bytes
  const std::vector<Sequence> sequences = Sequences(c);
  const AttentionPlan plan = PlanOnCpu(Shape(c, DataType::kFloat32), sequences.data(), std::nullopt, {.num_slots = 2});
  EXPECT_EQ(plan.algorithm, Algorithm::kFlash);
  EXPECT_THAT(plan.reason, HasSubstr("512 MiB"));
}

TEST(PlanOnCpuTest, FlashWorkspaceGrowsNoFasterThanTheSequence) {
  for (const int num_slots : kSlotCounts) {
    std::int64_t previous = 0;
    for (std::int64_t tokens = 1 << 10; tokens <= 1 << 21; tokens *= 2) {
      const PlannedCase c = {"", 1, tokens, tokens, 8, 8, 128, false};
      const std::vector<Sequence> sequences = Sequences(c);
      const AttentionPlan plan =
          PlanOnCpu(Shape(c, DataType::kFloat32), sequences.data(), Algorithm::kFlash, {.num_slots = num_slots});
      if (previous > 0) {
        EXPECT_LE(plan.workspace_bytes, 2 * previous) << tokens;
      }
      previous = std::max(plan.workspace_bytes, kMiB);
    }
  }
}

TEST(StandardWorkspaceTest, CountsScoresAndCopies) {
  const PlannedCase c = {"", 2, 16, 48, 4, 2, 64, false};
  const std::vector<Sequence> sequences = Sequences(c);
  const std::int64_t slices = 128;  // 3 of 32 bytes, aligned
  const std::int64_t scores = 2 * 4 * 16 * 48 * 4;
  EXPECT_EQ(StandardWorkspaceBytes(Shape(c, DataType::kFloat32), sequences.data()), slices + scores);
  const std::int64_t query = 2 * 16 * 4 * 64 * 4;
  const std::int64_t key_and_value = 2 * 48 * 2 * (64 + 64) * 4;
  EXPECT_EQ(StandardWorkspaceBytes(Shape(c, DataType::kBFloat16), sequences.data()), slices + query + key_and_value + scores);
  AttentionShape rounded = Shape(c, DataType::kFloat32);
  rounded.output_data_type = DataType::kFloat16;
  rounded.value_head_dim = 128;
  EXPECT_EQ(StandardWorkspaceBytes(rounded, sequences.data()), slices + 2 * query + scores);
}

TEST(StandardWorkspaceTest, TwoMillionTokensAreCountedExactly) {
  const PlannedCase c = {"", 1, 2'000'000, 2'000'000, 1, 1, 64, false};
  const std::vector<Sequence> sequences = Sequences(c);
  EXPECT_EQ(StandardWorkspaceBytes(Shape(c, DataType::kFloat32), sequences.data()), 64 + 16'000'000'000'000);
}

TEST(StandardWorkspaceTest, SaturatesInsteadOfWrapping) {
  const AttentionShape shape = Shape({"", 2, 0, 0, 64, 64, 256, false}, DataType::kFloat16);
  const std::int64_t large[] = {std::int64_t{1} << 31, std::int64_t{1} << 32, std::int64_t{1} << 40, kMax / 2, kMax};
  for (const std::int64_t query_tokens : large) {
    for (const std::int64_t key_tokens : large) {
      const std::vector<Sequence> sequences(
          2, {.query_begin = 0, .query_tokens = query_tokens, .key_begin = 0, .key_tokens = key_tokens, .lse_begin = 0});
      EXPECT_EQ(StandardWorkspaceBytes(shape, sequences.data()), kMax) << query_tokens << " x " << key_tokens;
    }
  }
}

}  // namespace
}  // namespace ridgeline::kernels::attention
