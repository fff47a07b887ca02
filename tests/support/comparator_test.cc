// The comparator must catch every fault planted here: a comparator that passes everything is the worst bug a suite can have.
#include "tests/support/comparator.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Three rows of four; the comparison passes until a test plants a fault.
class ComparatorTest : public ::testing::Test {
 protected:
  ::testing::AssertionResult Compare() const {
    return AllWithin(got_, want_, bound_, {.name = "output", .shape = {3, 4}, .seed = 17});
  }

  std::vector<double> want_ = {1, -2, 3, -4, 0.5, 0.25, -0.125, 8, -kInfinity, kInfinity, kNaN, 0};
  std::vector<double> got_ = want_;
  std::vector<double> bound_ = std::vector<double>(12, 1e-3);
};

TEST_F(ComparatorTest, PassesEqualValuesWithNonFiniteOnesInPlace) { EXPECT_TRUE(Compare()); }

TEST_F(ComparatorTest, PassesUpToTheBoundAndNoFurther) {
  want_[5] = got_[5] = 0;
  got_[5] = 1e-3;
  EXPECT_TRUE(Compare());
  got_[5] = std::nextafter(1e-3, 1);
  EXPECT_FALSE(Compare());
}

TEST_F(ComparatorTest, ReportsTheWorstPlaceCountAndSeed) {
  got_[1] = -2.002;
  got_[6] = 0.875;
  EXPECT_THAT(Compare().message(), AllOf(HasSubstr("output: 2 of 12 wrong"), HasSubstr("worst at [1, 2]"),
                                         HasSubstr("got 0.875, want -0.125, bound 0.001"), HasSubstr("seed 17")));
}

TEST_F(ComparatorTest, JudgesEachElementByItsOwnBound) {
  bound_[7] = 1;
  got_[7] = 8.9;
  EXPECT_TRUE(Compare());
  got_[4] += 0.9;
  EXPECT_FALSE(Compare());
}

TEST_F(ComparatorTest, CatchesNaNWhereANumberBelongs) {
  got_[0] = kNaN;
  EXPECT_FALSE(Compare());
}

TEST_F(ComparatorTest, CatchesANumberWhereNaNBelongs) {
  got_[10] = 0;
  EXPECT_FALSE(Compare());
}

TEST_F(ComparatorTest, CatchesAWrongSign) {
  got_[3] = 4;
  EXPECT_FALSE(Compare());
}

TEST_F(ComparatorTest, CatchesAWrongNegative) {
  got_[3] = -4.5;
  EXPECT_FALSE(Compare());
}

TEST_F(ComparatorTest, CatchesOneElementOffInTheLastPlace) {
  got_[11] = 0.01;
  EXPECT_THAT(Compare().message(), AllOf(HasSubstr("1 of 12 wrong"), HasSubstr("[2, 3]")));
}

TEST_F(ComparatorTest, CatchesRowsSwapped) {
  std::swap_ranges(got_.begin(), got_.begin() + 4, got_.begin() + 4);
  EXPECT_THAT(Compare().message(), HasSubstr("8 of 12 wrong"));
}

TEST_F(ComparatorTest, CatchesInfinityWhereALargeNumberBelongs) {
  want_[0] = std::numeric_limits<double>::max();
  got_[0] = kInfinity;
  EXPECT_FALSE(Compare());
}

TEST_F(ComparatorTest, CatchesALargeNumberWhereInfinityBelongs) {
  got_[8] = std::numeric_limits<double>::lowest();
  EXPECT_FALSE(Compare());
}

TEST_F(ComparatorTest, CatchesInfinityOfTheWrongSign) {
  got_[8] = kInfinity;
  EXPECT_FALSE(Compare());
}

TEST_F(ComparatorTest, CatchesInfinityWhereNaNBelongs) {
  got_[10] = kInfinity;
  EXPECT_FALSE(Compare());
}

TEST_F(ComparatorTest, CatchesAnyErrorWhereTheBoundIsZero) {
  bound_[0] = 0;
  EXPECT_TRUE(Compare());
  got_[0] = std::nextafter(1.0, 2.0);
  EXPECT_FALSE(Compare());
}

TEST_F(ComparatorTest, CatchesABoundThatHoldsNothing) {
  for (const double useless : {kNaN, kInfinity, -1.0}) {
    bound_[2] = useless;
    EXPECT_THAT(Compare().message(), HasSubstr("no bound to hold at [0, 2]")) << useless;
  }
}

TEST_F(ComparatorTest, CatchesMissingElements) {
  got_.pop_back();
  EXPECT_THAT(Compare().message(), HasSubstr("got 11 elements"));
}

TEST(SummarizeErrorsTest, TakesTheLargestAndTheRootOfTheMeanSquare) {
  const ErrorSummary summary =
      SummarizeErrors(std::vector<double>{1, 2, 3, kInfinity}, std::vector<double>{1, 5, -1, kInfinity});
  EXPECT_EQ(summary.largest, 4);
  EXPECT_DOUBLE_EQ(summary.root_mean_square, std::sqrt(25.0 / 3));
}

TEST(SummarizeErrorsTest, IsInfiniteIfANumberIsMissing) {
  const ErrorSummary summary = SummarizeErrors(std::vector<double>{1, kNaN}, std::vector<double>{1, 1});
  EXPECT_EQ(summary.largest, kInfinity);
  EXPECT_EQ(summary.root_mean_square, kInfinity);
}

TEST(SummarizeErrorsTest, OfNothingIsZero) {
  const ErrorSummary summary = SummarizeErrors({}, {});
  EXPECT_EQ(summary.largest, 0);
  EXPECT_EQ(summary.root_mean_square, 0);
}

}  // namespace
}  // namespace ridgeline::support
