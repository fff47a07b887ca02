#include "tests/support/paged_key_value.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "tests/reference/attention_reference.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"

namespace ridgeline::support {
namespace {

using kernels::DataType;
using kernels::attention::AttentionParams;
using kernels::attention::Sequence;
using ::testing::HasSubstr;

const AttentionProblem kProblem = Paged(RaggedProblem({1, 2, 1, 1}, {7, 0, 4, 9}, 2, 1, 8), 4);

double KeyAt(const AttentionParams& params, std::int64_t row, std::int64_t d) {
  return reference::Load(params.shape.data_type, params.key, row * 8 + d);
}

TEST(PagedKeyValueTest, TheTableLeadsToEachTokenAndPoisonFillsTheRest) {
  for (const std::uint64_t seed : {2, 4, 6, 8}) {  // even: the poison is NaN
    AttentionCase attention_case(kProblem, AttentionOptions(), DataType::kBFloat16, seed);
    const AttentionParams params = attention_case.params();
    ASSERT_EQ(params.shape.page_tokens, 4);
    std::set<std::int64_t> rows;
    for (std::size_t s = 0; s < 4; ++s) {
      const Sequence& dense = attention_case.sequences()[s];
      const Sequence& paged = params.sequences[s];
      EXPECT_EQ(paged.key_tokens, dense.key_tokens);
      EXPECT_EQ(paged.query_begin, dense.query_begin);
      for (std::int64_t token = 0; token < dense.key_tokens; ++token) {
        const std::int64_t row = params.block_table[paged.key_begin + token / 4] * 4 + token % 4;
        EXPECT_TRUE(rows.insert(row).second) << "two tokens in row " << row;
        for (std::int64_t d = 0; d < 8; ++d) {
          EXPECT_EQ(KeyAt(params, row, d), attention_case.key().Get((dense.key_begin + token) * 8 + d));
        }
      }
    }
    EXPECT_EQ(rows.size(), 20u);
    // Six pages are needed, and at least one is nobody's.
    for (std::int64_t row = 0; row < 7 * 4; ++row) {
      EXPECT_EQ(std::isnan(KeyAt(params, row, 5)), rows.count(row) == 0) << row;
    }
  }
}

TEST(PagedKeyValueTest, OddSeedsPoisonWithALargeNumber) {
  AttentionCase attention_case(kProblem, AttentionOptions(), DataType::kFloat32, 3);
  const AttentionParams params = attention_case.params();
  const std::int64_t first_page = params.block_table[params.sequences[0].key_begin + 1];  // of three tokens
  EXPECT_GT(KeyAt(params, first_page * 4 + 3, 0), 1e38);
}

TEST(PagedKeyValueTest, MovedPagesHoldTheSame) {
  AttentionCase attention_case(kProblem, AttentionOptions(), DataType::kFloat32, 1);
  std::set<std::vector<std::int32_t>> orders;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    attention_case.MovePages(seed);
    const AttentionParams params = attention_case.params();
    const std::int32_t* const table = params.block_table + params.sequences[3].key_begin;
    orders.insert({table[0], table[1], table[2]});
    EXPECT_EQ(KeyAt(params, table[2] * 4, 7), attention_case.key().Get((11 + 8) * 8 + 7));
  }
  EXPECT_GT(orders.size(), 4u);
}

TEST(PagedKeyValueTest, ForksShareWholePages) {
  AttentionCase attention_case(Forked(Paged(RaggedProblem({1, 1, 1}, {11, 30, 7}, 1, 1, 8), 4), 3), AttentionOptions(),
                               DataType::kFloat32, 1);
  const AttentionParams params = attention_case.params();
  const auto entry = [&](std::int64_t s, std::int64_t page) {
    return params.block_table[params.sequences[s].key_begin + page];
  };
  // The first has two whole pages, the last has one.
  EXPECT_EQ(entry(1, 0), entry(0, 0));
  EXPECT_EQ(entry(1, 1), entry(0, 1));
  EXPECT_NE(entry(1, 2), entry(0, 2));
  EXPECT_EQ(entry(2, 0), entry(0, 0));
  EXPECT_NE(entry(2, 1), entry(0, 1));
  EXPECT_EQ(attention_case.key().Get(11 * 8), attention_case.key().Get(0));  // dense rows say the same
  EXPECT_NE(attention_case.key().Get((11 + 8) * 8), attention_case.key().Get(8 * 8));
}

TEST(PagedKeyValueTest, ACaseNoticesAPageThatChanged) {
  AttentionCase attention_case(kProblem, AttentionOptions(), DataType::kFloat16, 1);
  const AttentionParams params = attention_case.params();
  EXPECT_TRUE(attention_case.RunWasClean());
  const_cast<std::int32_t*>(params.block_table)[0] ^= 1;
  EXPECT_THAT(attention_case.RunWasClean().message(), HasSubstr("input 8 was written to"));
}

}  // namespace
}  // namespace ridgeline::support
