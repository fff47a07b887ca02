// The workspace of standard attention on CUDA devices and its runs of sequences: host code, tested without a GPU.
#include "kernels/attention/standard/standard_cuda_layout.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/standard/standard_cuda.h"
#include "kernels/common/data_type.h"

namespace ridgeline::kernels::attention {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

AttentionShape Shape(DataType type, DataType output_type, std::int64_t num_sequences) {
  return {.data_type = type,
          .output_data_type = output_type,
          .num_sequences = num_sequences,
          .query_heads = 4,
          .kv_heads = 2,
          .head_dim = 16,
          .value_head_dim = 24};
}

Sequence Tokens(std::int64_t query_begin, std::int64_t query_tokens, std::int64_t key_begin, std::int64_t key_tokens) {
  return {query_begin, query_tokens, key_begin, key_tokens, /*lse_begin=*/0};
}

std::vector<SequenceRun> RunsOf(const std::vector<Sequence>& sequences, std::int64_t page_tokens = 0) {
  AttentionShape shape = Shape(DataType::kFloat32, DataType::kFloat32, static_cast<std::int64_t>(sequences.size()));
  shape.page_tokens = page_tokens;
  SequenceRuns runs(shape, sequences.data());
  std::vector<SequenceRun> all;
  for (SequenceRun run; runs.Next(run);) all.push_back(run);
  return all;
}

TEST(StandardCudaLayoutTest, PartsCountedByHand) {
  const Sequence sequences[] = {Tokens(0, 3, 0, 5), Tokens(3, 2, 5, 16)};
  // Rows of S take 8 and 16 elements: 4 heads x (3 x 8 + 2 x 16) = 224 elements.
  EXPECT_EQ(StandardWorkspaceBytesOnCuda(Shape(DataType::kFloat32, DataType::kFloat32, 2), sequences), 896);
  EXPECT_EQ(StandardWorkspaceBytesOnCuda(Shape(DataType::kBFloat16, DataType::kBFloat16, 2), sequences), 896 + 448);
  EXPECT_EQ(StandardWorkspaceBytesOnCuda(Shape(DataType::kBFloat16, DataType::kFloat32, 2), sequences), 896 + 448);
  // A float32 product beside: 5 tokens x 4 heads x 24 x 4 bytes = 1920.
  EXPECT_EQ(StandardWorkspaceBytesOnCuda(Shape(DataType::kFloat16, DataType::kBFloat16, 2), sequences), 896 + 448 + 1920);
  EXPECT_EQ(StandardWorkspaceBytesOnCuda(Shape(DataType::kFloat32, DataType::kFloat16, 2), sequences), 896 + 1920);
}

TEST(StandardCudaLayoutTest, Float32ProbabilitiesReplaceScores) {
  const Sequence sequence = Tokens(0, 3, 0, 5);
  const StandardCudaLayout in_place = LayOutStandardOnCuda(Shape(DataType::kFloat32, DataType::kFloat32, 1), &sequence);
  EXPECT_EQ(in_place.probabilities, in_place.scores);
  const StandardCudaLayout apart = LayOutStandardOnCuda(Shape(DataType::kFloat16, DataType::kFloat16, 1), &sequence);
  EXPECT_EQ(apart.probabilities, 384);
  EXPECT_EQ(apart.probabilities % 64, 0);
}

TEST(StandardCudaLayoutTest, PagesAreGatheredBehindTheRest) {
  const Sequence sequences[] = {Tokens(0, 3, 0, 5), Tokens(3, 2, 7, 16)};
  AttentionShape shape = Shape(DataType::kBFloat16, DataType::kBFloat16, 2);
  shape.page_tokens = 4;
  const StandardCudaLayout layout = LayOutStandardOnCuda(shape, sequences);
  // 21 tokens x 2 heads x 2 bytes, 16 keys or 24 values each.
  EXPECT_EQ(layout.key, 896 + 448);
  EXPECT_EQ(layout.value, layout.key + 1344);
  EXPECT_EQ(layout.total_bytes, layout.value + 2048);
}

TEST(StandardCudaLayoutTest, SizesThatNoMemoryHasSaturate) {
  const Sequence huge = Tokens(0, std::int64_t{1} << 40, 0, std::int64_t{1} << 40);
  EXPECT_EQ(StandardWorkspaceBytesOnCuda(Shape(DataType::kBFloat16, DataType::kFloat16, 1), &huge), kMax);
  EXPECT_EQ(StandardWorkspaceBytesOnCuda(Shape(DataType::kBFloat16, DataType::kFloat16, 0), nullptr), 0);
}

TEST(SequenceRunsTest, DenseBatchIsOneRun) {
  const std::vector<SequenceRun> runs = RunsOf({Tokens(0, 3, 0, 5), Tokens(3, 3, 8, 5), Tokens(6, 3, 16, 5)});
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].count, 3);
  EXPECT_EQ(runs[0].query_stride_tokens, 3);
  EXPECT_EQ(runs[0].key_stride_tokens, 8);
  EXPECT_EQ(runs[0].first_key_token, 0);
}

TEST(SequenceRunsTest, LengthsAndDistancesEndARun) {
  const std::vector<SequenceRun> runs = RunsOf({Tokens(0, 3, 0, 5), Tokens(3, 3, 8, 5), Tokens(6, 3, 20, 5),  // farther away
                                                Tokens(9, 3, 32, 5), Tokens(12, 3, 44, 6), Tokens(15, 0, 50, 6)});
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_EQ(runs[0].count, 2);
  EXPECT_EQ(runs[1].first_sequence, 2);
  EXPECT_EQ(runs[1].count, 2);
  EXPECT_EQ(runs[1].key_stride_tokens, 12);
  EXPECT_EQ(runs[2].first_sequence, 4);
  EXPECT_EQ(runs[3].first_sequence, 5);
  // 4 heads x 3 rows x 8 elements for each sequence before.
  EXPECT_EQ(runs[1].first_score, 2 * 96);
  EXPECT_EQ(runs[2].first_score, 4 * 96);
  EXPECT_EQ(runs[3].first_score, 5 * 96);
  EXPECT_EQ(runs[3].first_product_token, 15);
}

// Wherever its pages are, a sequence's tokens follow those of the sequence before.
TEST(SequenceRunsTest, PagedSequencesLieSideBySide) {
  const std::vector<SequenceRun> runs =
      RunsOf({Tokens(0, 1, 9, 5), Tokens(1, 1, 0, 5), Tokens(2, 1, 40, 5), Tokens(3, 1, 20, 6)}, /*page_tokens=*/4);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].count, 3);
  EXPECT_EQ(runs[0].first_key_token, 0);
  EXPECT_EQ(runs[0].key_stride_tokens, 5);
  EXPECT_EQ(runs[1].first_key_token, 15);
}

TEST(SequenceRunsTest, NoSequencesNoRuns) { EXPECT_TRUE(RunsOf({}).empty()); }

}  // namespace
}  // namespace ridgeline::kernels::attention
