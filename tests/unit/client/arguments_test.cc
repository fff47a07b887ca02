#include "client/cli/arguments.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::cli {
namespace {

using support::IsOkAndHolds;
using support::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ParseIntegersTest, TakesListsAndNamesTheFlagOfBadOnes) {
  EXPECT_THAT(ParseIntegers("lengths", "128,256", 1), IsOkAndHolds(ElementsAre(128, 256)));
  EXPECT_THAT(ParseIntegers("lengths", "", 1), IsOkAndHolds(IsEmpty()));
  for (const std::string text : {"0", "1,,2", "1,", "x", "1.5", "-3", "99999999999999999999"}) {
    const absl::Status status = ParseIntegers("lengths", text, 1).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--lengths"))) << text;
    EXPECT_TRUE(IsUsageError(status));
  }
}

TEST(ParseNumbersTest, TakesWhatFloat32HoldsAndNoSinks) {
  EXPECT_THAT(ParseNumbers("sink_logits", "0.5,-2,-inf,1e-3"),
              IsOkAndHolds(ElementsAre(0.5F, -2.0F, -std::numeric_limits<float>::infinity(), 1e-3F)));
  for (const std::string text : {"", "1,,2", "1,", "x", "nan", "inf", "1e39", "-1e39", "1;2", "slopes.np"}) {
    const absl::Status status = ParseNumbers("alibi_slopes", text).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--alibi_slopes"))) << text;
    EXPECT_TRUE(IsUsageError(status));
  }
}

TEST(ParseProblemShapeTest, FourOrSixExtents) {
  ASSERT_OK_AND_ASSIGN(const ProblemShape four, ParseProblemShape("random", "1,128,8,64"));
  EXPECT_EQ(four.batch, 1);
  EXPECT_EQ(four.query_tokens, 128);
  EXPECT_EQ(four.key_tokens, 128);
  EXPECT_EQ(four.query_heads, 8);
  EXPECT_EQ(four.kv_heads, 8);
  EXPECT_EQ(four.head_dim, 64);
  EXPECT_EQ(four.value_head_dim, 64);
  ASSERT_OK_AND_ASSIGN(const ProblemShape six, ParseProblemShape("random", "2,1,4096,32,8,128"));
  EXPECT_EQ(six.query_tokens, 1);
  EXPECT_EQ(six.key_tokens, 4096);
  EXPECT_EQ(six.query_heads, 32);
  EXPECT_EQ(six.kv_heads, 8);
  EXPECT_EQ(six.value_head_dim, 128);
  EXPECT_THAT(ParseProblemShape("random", "1,2,3"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("3 extents")));
  EXPECT_THAT(ParseProblemShape("random", "1,2,-3,4"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(NamesTest, ParseAndPrintAreInverse) {
  for (const std::string name : {"float32", "float16", "bfloat16"}) EXPECT_EQ(DataTypeName(*ParseDataType(name)), name);
  for (const std::string name : {"auto", "standard", "flash"}) EXPECT_EQ(AlgorithmName(*ParseAlgorithm(name)), name);
  EXPECT_THAT(ParseDataType("fp32"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'fp32'; float32")));
  EXPECT_THAT(ParseAlgorithm("fast"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'fast'; auto")));
}

TEST(ClosestMatchTest, SuggestsOnlyWhatIsLikely) {
  const std::vector<std::string> commands = {"attend", "compare", "device", "memory"};
  EXPECT_EQ(ClosestMatch("atend", commands), "attend");
  EXPECT_EQ(ClosestMatch("compair", commands), "compare");
  EXPECT_EQ(ClosestMatch("memroy", commands), "memory");
  EXPECT_EQ(ClosestMatch("launch", commands), std::nullopt);
  EXPECT_EQ(ClosestMatch("", commands), std::nullopt);
}

TEST(UsageErrorTest, DiffersFromTheServersErrors) {
  EXPECT_TRUE(IsUsageError(UsageError("no such flag")));
  EXPECT_FALSE(IsUsageError(absl::InvalidArgumentError("query.shape: rank is 2")));
  EXPECT_FALSE(IsUsageError(absl::OkStatus()));
}

}  // namespace
}  // namespace ridgeline::cli
