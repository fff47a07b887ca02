#include "client/cli/samples.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::cli {
namespace {

using ::testing::ElementsAre;

Samples Of(const std::vector<double>& values) {
  Samples samples;
  for (const double value : values) samples.Add(value);
  return samples;
}

TEST(SamplesTest, CountsWhatWasAddedAndAppended) {
  Samples samples;
  EXPECT_EQ(samples.count(), 0);
  samples.Add(2);
  samples.Append(Of({3, 1}));
  samples.Append(Samples());
  EXPECT_EQ(samples.count(), 3);
  EXPECT_DOUBLE_EQ(samples.Summarize({}).mean, 2);
}

TEST(SamplesTest, OneSampleIsEveryQuantile) {
  const Samples::Summary summary = Of({4.5}).Summarize({1, 500, 999, 1000});
  EXPECT_THAT(summary.quantiles, ElementsAre(4.5, 4.5, 4.5, 4.5));
  EXPECT_EQ(summary.mean, 4.5);
  EXPECT_EQ(summary.max, 4.5);
}

TEST(SamplesTest, QuantilesAreByNearestRank) {
  Samples samples;
  for (int i = 1000; i >= 1; --i) samples.Add(i);  // in an order that isn't theirs
  const Samples::Summary summary = samples.Summarize({1, 500, 900, 950, 990, 999, 1000});
  EXPECT_THAT(summary.quantiles, ElementsAre(1, 500, 900, 950, 990, 999, 1000));
  EXPECT_DOUBLE_EQ(summary.mean, 500.5);
  EXPECT_EQ(summary.max, 1000);
  EXPECT_THAT(Of({1, 2}).Summarize({500, 501}).quantiles, ElementsAre(1, 2));
  EXPECT_THAT(Of({1, 2, 3}).Summarize({333, 334, 667}).quantiles, ElementsAre(1, 2, 3));
}

TEST(SamplesTest, TiesAreOneValue) {
  EXPECT_THAT(Of({2, 1, 2, 2, 2, 9, 2, 2, 2, 2}).Summarize({100, 101, 500, 900, 901}).quantiles, ElementsAre(1, 2, 2, 2, 9));
}

}  // namespace
}  // namespace ridgeline::cli
