#include "client/cli/work_mix.h"

#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::cli {
namespace {

using support::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ParseWeightedShapesTest, ShapesWithAndWithoutWeights) {
  ASSERT_OK_AND_ASSIGN(const std::vector<WeightedShape> shapes, ParseWeightedShapes("1,512,8,64/2.5:2,16,4096,32,8,128"));
  ASSERT_EQ(shapes.size(), 2);
  EXPECT_EQ(shapes[0].weight, 1);
  EXPECT_EQ(shapes[0].shape.key_tokens, 512);
  EXPECT_EQ(shapes[1].weight, 2.5);
  EXPECT_EQ(shapes[1].shape.query_tokens, 16);
  EXPECT_EQ(shapes[1].shape.kv_heads, 8);
}

TEST(ParseWeightedShapesTest, MistakesNameTheFlag) {
  for (const std::string text : {"", "1,2,3", "1,512,8,64/", "0:1,512,8,64", "-1:1,512,8,64", "inf:1,512,8,64",
                                 "nan:1,512,8,64", "x:1,512,8,64", "1:2:1,512,8,64", "1,0,8,64", "1,512,8,x"}) {
    const absl::Status status = ParseWeightedShapes(text).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("--shapes"), HasSubstr("allowed"))))
        << text;
    EXPECT_TRUE(IsUsageError(status)) << text;
  }
}

TEST(WorkMixTest, DrawsByWeightAndDecodesItsShare) {
  WorkMix mix;
  mix.shapes = *ParseWeightedShapes("3:1,512,8,64/1:1,256,8,64");
  mix.decode_share = 0.2;
  mix.context = *LengthDistribution::Parse("context", "fixed:77");
  std::mt19937_64 random(1);
  constexpr int kCount = 4000;
  int num_long = 0;
  int num_decode = 0;
  for (int i = 0; i < kCount; ++i) {
    const Work work = mix.Draw(random);
    num_decode += work.decode ? 1 : 0;
    if (work.decode) {
      EXPECT_EQ(work.shape.query_tokens, 1);
      EXPECT_EQ(work.shape.key_tokens, 77);
    } else {
      EXPECT_EQ(work.shape.query_tokens, work.shape.key_tokens);
      num_long += work.shape.query_tokens == 512 ? 1 : 0;
    }
  }
  // Five standard deviations of a binomial count.
  EXPECT_NEAR(num_decode, 0.2 * kCount, 5 * std::sqrt(kCount * 0.2 * 0.8));
  EXPECT_NEAR(num_long, 0.6 * kCount, 5 * std::sqrt(kCount * 0.6 * 0.4));
}

TEST(WorkMixTest, WithoutContextsDecodeStepsSeeTheShapesKeys) {
  WorkMix mix;
  mix.shapes = *ParseWeightedShapes("2,512,1024,8,2,64");
  std::mt19937_64 random(1);
  EXPECT_FALSE(mix.Draw(random).decode);
  mix.decode_share = 1;
  const Work work = mix.Draw(random);
  EXPECT_TRUE(work.decode);
  EXPECT_EQ(work.shape.batch, 2);
  EXPECT_EQ(work.shape.query_tokens, 1);
  EXPECT_EQ(work.shape.key_tokens, 1024);
}

}  // namespace
}  // namespace ridgeline::cli
