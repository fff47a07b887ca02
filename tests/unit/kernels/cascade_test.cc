// Which sequences share a prefix, and what the passes of a cascade attend to: host code, tested without a GPU.
#include "kernels/attention/cascade/cascade.h"

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/common/data_type.h"

namespace ridgeline::kernels::attention {
namespace {

constexpr std::int64_t kPage = 16;

AttentionShape Shape(std::int64_t group_heads = 4) {
  return {.data_type = DataType::kBFloat16,
          .output_data_type = DataType::kBFloat16,
          .num_sequences = 0,
          .query_heads = group_heads * 2,
          .kv_heads = 2,
          .head_dim = 64,
          .value_head_dim = 64,
          .page_tokens = kPage};
}

// Sequences that adjoin, and their pages.
class Batch {
 public:
  // `shared` pages with numbers from `origin` on, then pages of its own.
  void Add(std::int64_t key_tokens, std::int64_t shared, std::int32_t origin, std::int64_t query_tokens = 1) {
    const auto key_begin = static_cast<std::int64_t>(table_.size());
    sequences_.push_back({.query_begin = query_tokens_,
                          .query_tokens = query_tokens,
                          .key_begin = key_begin,
                          .key_tokens = key_tokens,
                          .lse_begin = 1000 + query_tokens_});
    for (std::int64_t i = 0; i < (key_tokens + kPage - 1) / kPage; ++i) {
      table_.push_back(i < shared ? origin + static_cast<std::int32_t>(i) : next_page_++);
    }
    query_tokens_ += query_tokens;
  }

  SharedPrefixes Find(std::int64_t group_heads = 4) const { return FindSharedPrefixes(Shape(group_heads), sequences_, table_); }
  std::vector<Sequence>& sequences() { return sequences_; }

 private:
  std::vector<Sequence> sequences_;
  std::vector<std::int32_t> table_;
  std::int64_t query_tokens_ = 0;
  std::int32_t next_page_ = 100000;
};

std::vector<Sequence> PrefixesWithKeys(const SharedPrefixes& prefixes) {
  std::vector<Sequence> with_keys;
  for (std::int64_t i = 0; i < prefixes.num_prefixes; ++i) {
    if (prefixes.sequences[i].key_tokens > 0) with_keys.push_back(prefixes.sequences[i]);
  }
  return with_keys;
}

// Prefixes have each query once, and with its tail each sequence has its keys once.
void ExpectWhole(const SharedPrefixes& prefixes, const std::vector<Sequence>& sequences) {
  std::vector<std::int64_t> prefix_keys(prefixes.query_tokens, -1);
  for (std::int64_t i = 0; i < prefixes.num_prefixes; ++i) {
    const Sequence& prefix = prefixes.sequences[i];
    EXPECT_EQ(prefix.lse_begin, prefix.query_begin);
    for (std::int64_t q = prefix.query_begin; q < prefix.query_begin + prefix.query_tokens; ++q) {
      EXPECT_EQ(prefix_keys[q], -1) << q;
      prefix_keys[q] = prefix.key_tokens;
    }
  }
  ASSERT_EQ(prefixes.sequences.size(), prefixes.num_prefixes + sequences.size());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& tail = prefixes.sequences[prefixes.num_prefixes + i];
    EXPECT_EQ(tail.query_begin, sequences[i].query_begin);
    EXPECT_EQ(tail.query_tokens, sequences[i].query_tokens);
    EXPECT_EQ(tail.lse_begin, tail.query_begin);
    for (std::int64_t q = tail.query_begin; q < tail.query_begin + tail.query_tokens; ++q) {
      EXPECT_EQ(prefix_keys[q] + tail.key_tokens, sequences[i].key_tokens) << q;
      EXPECT_EQ(sequences[i].key_begin + prefix_keys[q] / kPage, tail.key_begin) << q;
    }
  }
}

TEST(CascadeTest, ForksShareTheirFullPages) {
  Batch batch;
  for (const std::int64_t tail : {5, 1, 40}) batch.Add(4 * kPage + tail, 4, 0);
  const SharedPrefixes prefixes = batch.Find();
  ASSERT_EQ(prefixes.num_prefixes, 1);
  EXPECT_EQ(prefixes.sequences[0].query_tokens, 3);
  EXPECT_EQ(prefixes.sequences[0].key_tokens, 4 * kPage);
  EXPECT_EQ(prefixes.saved_tokens, 2 * 4 * kPage);
  ExpectWhole(prefixes, batch.sequences());
}

// A query may not see a key behind its own, so pages that hold one are no part of a prefix.
TEST(CascadeTest, PagesEndBeforeTheFirstQuery) {
  Batch batch;
  batch.Add(4 * kPage, 4, 0);
  batch.Add(4 * kPage + 1, 4, 0, /*query_tokens=*/2);
  batch.Add(5 * kPage, 4, 0);
  const SharedPrefixes prefixes = batch.Find();
  ASSERT_EQ(PrefixesWithKeys(prefixes).size(), 1u);
  EXPECT_EQ(PrefixesWithKeys(prefixes)[0].key_tokens, 3 * kPage);
  ExpectWhole(prefixes, batch.sequences());
}

TEST(CascadeTest, WhoHasOtherPagesIsAlone) {
  Batch batch;
  batch.Add(100, 5, 0);
  batch.Add(100, 5, 1000);
  batch.Add(0, 0, 0);
  batch.Add(100, 5, 0, /*query_tokens=*/0);
  batch.Add(100, 5, 0);
  const SharedPrefixes prefixes = batch.Find();
  EXPECT_EQ(prefixes.num_prefixes, 0);
  EXPECT_EQ(prefixes.saved_tokens, 0);
}

TEST(CascadeTest, QueriesThatDoNotAdjoinShareNothing) {
  Batch batch;
  batch.Add(100, 5, 0);
  batch.Add(100, 5, 0);
  batch.sequences()[1].query_begin += 1;
  EXPECT_EQ(batch.Find().saved_tokens, 0);
}

// Of ten pages a pair saves more than three sequences of one.
TEST(CascadeTest, GroupsEndWhereMoreWouldBeLost) {
  Batch batch;
  batch.Add(10 * kPage + 3, 10, 0);
  batch.Add(10 * kPage + 3, 10, 0);
  batch.Add(10 * kPage + 3, 1, 0);
  batch.Add(10 * kPage + 3, 10, 500);
  batch.Add(10 * kPage + 3, 9, 500);
  const SharedPrefixes prefixes = batch.Find();
  const std::vector<Sequence> with_keys = PrefixesWithKeys(prefixes);
  ASSERT_EQ(with_keys.size(), 2u);
  EXPECT_EQ(with_keys[0].key_tokens, 10 * kPage);
  EXPECT_EQ(with_keys[1].key_tokens, 9 * kPage);
  EXPECT_EQ(prefixes.saved_tokens, 19 * kPage);
  ExpectWhole(prefixes, batch.sequences());
}

// Queries are cut into sequences for the decode kernel, of 16 packed rows, unless that reads too much again.
TEST(CascadeTest, QueriesOfAPrefixSuitAKernel) {
  constexpr std::int64_t kLong = 1 << 16;  // pages, 512 MB here
  for (const auto& [members, pages, sequences] :
       {std::tuple(4, std::int64_t{4}, 1), std::tuple(7, std::int64_t{4}, 2), std::tuple(64, std::int64_t{4}, 16),
        std::tuple(4, kLong, 1), std::tuple(5, kLong, 1)}) {
    Batch batch;
    for (int i = 0; i < members; ++i) batch.Add(pages * kPage + 1, pages, 0);
    const SharedPrefixes prefixes = batch.Find();
    EXPECT_EQ(prefixes.num_prefixes, sequences) << members;
    EXPECT_EQ(prefixes.saved_tokens, (members - sequences) * pages * kPage);
    ExpectWhole(prefixes, batch.sequences());
  }
}

// A sequence without queries has no part in a prefix, and those beside it have theirs.
TEST(CascadeTest, EverySequenceHasATail) {
  Batch batch;
  batch.Add(100, 6, 0, /*query_tokens=*/0);
  batch.Add(100, 6, 0);
  batch.Add(100, 6, 0, /*query_tokens=*/0);
  batch.Add(3, 0, 0);
  batch.Add(100, 6, 0);
  batch.Add(100, 6, 0, /*query_tokens=*/2);
  batch.Add(0, 0, 0);
  const SharedPrefixes prefixes = batch.Find();
  EXPECT_EQ(prefixes.saved_tokens, 6 * kPage);
  ExpectWhole(prefixes, batch.sequences());
}

TEST(CascadeTest, WindowsAndPositionsForbidIt) {
  AttentionShape shape = Shape();
  EXPECT_TRUE(AllowsCascade(shape, /*has_alibi=*/false));
  EXPECT_FALSE(AllowsCascade(shape, /*has_alibi=*/true));
  shape.window_right = 0;
  EXPECT_TRUE(AllowsCascade(shape, false));
  shape.window_left = 100;
  EXPECT_FALSE(AllowsCascade(shape, false));
  AttentionShape dense = Shape();
  dense.page_tokens = 0;
  EXPECT_FALSE(AllowsCascade(dense, false));
}

TEST(CascadeTest, LittleIsNotWorthASecondPass) {
  SharedPrefixes prefixes;
  prefixes.saved_tokens = 1000;
  EXPECT_FALSE(CascadePays(Shape(), prefixes));
  prefixes.saved_tokens = 1 << 19;
  EXPECT_TRUE(CascadePays(Shape(), prefixes));
}

TEST(CascadeTest, SavesThePrefixLessWhatTheSecondPassMoves) {
  Batch batch;
  for (int i = 0; i < 3; ++i) batch.Add(4 * kPage + 1, 4, 0);
  const AttentionShape shape = Shape();
  const AttentionPlan plan = CombinePasses(shape, batch.Find(), {}, {});
  const std::int64_t element_bytes = ElementBytes(shape.data_type);
  const std::int64_t prefix_bytes = 4 * kPage * shape.kv_heads * (shape.head_dim + shape.value_head_dim) * element_bytes;
  const std::int64_t query_bytes = 3 * shape.query_heads * shape.head_dim * element_bytes;
  const std::int64_t part_bytes = 3 * shape.query_heads * (shape.value_head_dim + 1) * 4;
  EXPECT_EQ(plan.cascade->saved_bytes, 2 * prefix_bytes - query_bytes - 2 * 2 * part_bytes);
}

TEST(CascadeTest, PassesHaveTheirOwnPartsOfTheWorkspace) {
  Batch batch;
  for (const std::int64_t tail : {5, 1, 40}) batch.Add(4 * kPage + tail, 4, 0);
  const SharedPrefixes prefixes = batch.Find();
  AttentionShape shape = Shape();
  shape.num_sequences = 3;
  shape.window_right = 0;
  AttentionPlan pass_plan = {};
  pass_plan.workspace_bytes = 128;
  const AttentionPlan plan = CombinePasses(shape, prefixes, pass_plan, pass_plan);
  std::vector<float> workspace(plan.workspace_bytes / sizeof(float));
  const AttentionParams params = {.shape = shape,
                                  .scale = 1,
                                  .sequences = nullptr,
                                  .query = nullptr,
                                  .key = nullptr,
                                  .value = nullptr,
                                  .output = nullptr,
                                  .workspace = workspace.data(),
                                  .pass_sequences = prefixes.sequences.data()};
  const std::int64_t rows = 3 * shape.query_heads;
  float* end = workspace.data();
  for (int pass = 0; pass < kCascadePasses; ++pass) {
    const AttentionParams pass_params = CascadePassParams(*plan.cascade, params, pass);
    EXPECT_EQ(pass_params.output, end);
    end += rows * shape.value_head_dim;
    EXPECT_EQ(pass_params.shape.num_sequences, pass == 0 ? 1 : 3);
    EXPECT_EQ(pass_params.shape.window_right, pass == 0 ? kUnlimitedWindow : 0);
    EXPECT_EQ(pass_params.shape.output_data_type, DataType::kFloat32);
    EXPECT_EQ(pass_params.sequences, prefixes.sequences.data() + pass);
  }
  for (int pass = 0; pass < kCascadePasses; ++pass) {
    EXPECT_EQ(CascadePassParams(*plan.cascade, params, pass).log_sum_exp, end);
    end += rows;
  }
  EXPECT_LE(static_cast<char*>(CascadePassParams(*plan.cascade, params, 0).workspace) + 128,
            reinterpret_cast<char*>(workspace.data() + workspace.size()));
}

}  // namespace
}  // namespace ridgeline::kernels::attention
