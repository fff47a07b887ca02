// The mask's range against the rule of attention.h, tried out on every small case.
#include "kernels/attention/visible_range.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"

namespace ridgeline::kernels::attention {
namespace {

constexpr std::int64_t kWindows[] = {0, 1, 2, 3, 5, 8, kUnlimitedWindow};

bool Sees(const AttentionShape& shape, std::int64_t query_tokens, std::int64_t key_tokens, std::int64_t query,
          std::int64_t key) {
  const std::int64_t position = query + key_tokens - query_tokens;
  return position - shape.window_left <= key && key <= position + shape.window_right;
}

AttentionShape WithWindow(std::int64_t left, std::int64_t right) {
  AttentionShape shape = {};
  shape.window_left = left;
  shape.window_right = right;
  return shape;
}

template <typename Body>
void ForEachSmallCase(Body body) {
  for (const std::int64_t left : kWindows) {
    for (const std::int64_t right : kWindows) {
      for (std::int64_t query_tokens = 1; query_tokens <= 7; ++query_tokens) {
        for (std::int64_t key_tokens = 0; key_tokens <= 7; ++key_tokens) {
          SCOPED_TRACE(::testing::Message()
                       << "window " << left << ", " << right << "; Sq " << query_tokens << ", Sk " << key_tokens);
          body(WithWindow(left, right), query_tokens, key_tokens);
        }
      }
    }
  }
}

TEST(VisibleRangeTest, HoldsExactlyTheVisibleKeys) {
  ForEachSmallCase([](const AttentionShape& shape, std::int64_t query_tokens, std::int64_t key_tokens) {
    const VisibleRange range(shape, query_tokens, key_tokens);
    for (std::int64_t query = 0; query < query_tokens; ++query) {
      const KeyRange keys = range.OfQuery(query);
      ASSERT_LE(0, keys.begin);
      ASSERT_LE(keys.begin, keys.end);
      ASSERT_LE(keys.end, key_tokens);
      for (std::int64_t key = 0; key < key_tokens; ++key) {
        EXPECT_EQ(keys.begin <= key && key < keys.end, Sees(shape, query_tokens, key_tokens, query, key))
            << "query " << query << ", key " << key;
      }
    }
  });
}

TEST(VisibleRangeTest, OfQueriesIsTheUnionAndOfEveryQueryTheIntersection) {
  ForEachSmallCase([](const AttentionShape& shape, std::int64_t query_tokens, std::int64_t key_tokens) {
    const VisibleRange range(shape, query_tokens, key_tokens);
    for (std::int64_t begin = 0; begin < query_tokens; ++begin) {
      for (std::int64_t end = begin + 1; end <= query_tokens; ++end) {
        const KeyRange any = range.OfQueries(begin, end);
        const KeyRange every = range.OfEveryQuery(begin, end);
        for (std::int64_t key = 0; key < key_tokens; ++key) {
          std::int64_t num_seeing = 0;
          for (std::int64_t query = begin; query < end; ++query) {
            num_seeing += Sees(shape, query_tokens, key_tokens, query, key) ? 1 : 0;
          }
          if (num_seeing > 0) {
            EXPECT_TRUE(any.begin <= key && key < any.end) << "queries " << begin << " to " << end << ", key " << key;
          }
          EXPECT_EQ(every.begin <= key && key < every.end, num_seeing == end - begin)
              << "queries " << begin << " to " << end << ", key " << key;
        }
      }
    }
  });
}

TEST(VisibleRangeTest, CausalMaskAlignsToTheBottomRight) {
  const VisibleRange range(WithWindow(kUnlimitedWindow, 0), /*query_tokens=*/2, /*key_tokens=*/5);
  EXPECT_EQ(range.OfQuery(0).end, 4);
  EXPECT_EQ(range.OfQuery(1).end, 5);
  EXPECT_EQ(range.Position(1), 4);
}

TEST(VisibleRangeTest, MoreQueriesThanKeysLeaveTheFirstRowsEmpty) {
  const VisibleRange range(WithWindow(kUnlimitedWindow, 0), /*query_tokens=*/5, /*key_tokens=*/2);
  EXPECT_EQ(range.OfQuery(2).size(), 0);
  EXPECT_EQ(range.OfQuery(3).size(), 1);
  EXPECT_EQ(range.Position(0), -3);
}

}  // namespace
}  // namespace ridgeline::kernels::attention
