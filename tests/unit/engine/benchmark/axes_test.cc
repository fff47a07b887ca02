#include "server/engine/benchmark/axes.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::engine::benchmark {
namespace {

using support::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const std::vector<Axis>& TestAxes() {
  static const auto* const kAxes =
      new std::vector<Axis>{WordAxis("order", "", {"up", "down"}), IntegerAxis("size", "", 8, 1024, {8, 16}, 8)};
  return *kAxes;
}

bool Always(const AxisValues&) { return true; }

absl::StatusOr<std::vector<AxisValues>> Expand(const std::map<std::string, std::vector<std::string>>& wanted) {
  return ExpandAxes(TestAxes(), wanted, Always);
}

std::vector<std::string> Texts(const std::vector<AxisValues>& points) {
  std::vector<std::string> texts;
  for (const AxisValues& point : points) texts.push_back(point.ToString());
  return texts;
}

TEST(AxesTest, DefaultsSpanAllCombinationsTheFirstAxisSlowest) {
  ASSERT_OK_AND_ASSIGN(const auto points, Expand({}));
  EXPECT_THAT(Texts(points), ElementsAre("order=up, size=8", "order=up, size=16", "order=down, size=8", "order=down, size=16"));
  EXPECT_EQ(points[1].Word("order"), "up");
  EXPECT_EQ(points[1].Integer("size"), 16);
}

TEST(AxesTest, WantedValuesReplaceDefaultsInTheirOrder) {
  ASSERT_OK_AND_ASSIGN(const auto points, Expand({{"size", {"1024", "24"}}, {"order", {"down"}}}));
  EXPECT_THAT(Texts(points), ElementsAre("order=down, size=1024", "order=down, size=24"));
}

TEST(AxesTest, CombinationsWithoutSenseAreNoPoints) {
  ASSERT_OK_AND_ASSIGN(const auto points, ExpandAxes(TestAxes(), {}, [](const AxisValues& values) {
                         return values.Word("order") == "up" || values.Integer("size") == 8;
                       }));
  EXPECT_THAT(points, SizeIs(3));
}

TEST(AxesTest, NothingThatMakesSenseIsAnError) {
  const auto points = ExpandAxes(TestAxes(), {}, [](const AxisValues&) { return false; });
  EXPECT_THAT(points, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("makes sense")));
}

TEST(AxesTest, AnUnknownAxisIsNamedWithThoseThatThereAre) {
  const auto points = Expand({{"colour", {"red"}}});
  EXPECT_THAT(points, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("order, size")));
  EXPECT_EQ(base::ErrorField(points.status()), "axes");
}

TEST(AxesTest, AnAxisWithoutAValueIsAnError) {
  const auto points = Expand({{"size", {}}});
  EXPECT_THAT(points, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(base::ErrorField(points.status()), "axes.size");
}

TEST(AxesTest, ValuesThatAreNotAllowedAreNamed) {
  for (const char* value :
       {"0", "7", "12", "1032", "-8", "+8", " 8", "08", "8.0", "0x8", "1e3", "99999999999999999999", "", "up"}) {
    const auto points = Expand({{"size", {"8", value}}});
    EXPECT_THAT(points, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("from 8 to 1024, multiples of 8"))) << value;
    EXPECT_EQ(base::ErrorField(points.status()), "axes.size");
  }
  EXPECT_THAT(Expand({{"order", {"Up"}}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("up, down")));
}

TEST(AxesTest, AMessageDoesNotRepeatALongValue) {
  const auto points = Expand({{"order", {std::string(100'000, 'x')}}});
  EXPECT_LT(points.status().message().size(), 200u);
}

TEST(AxesTest, PointsAreLimitedHoweverManyValuesCome) {
  std::vector<std::string> sizes;
  for (int i = 0; i < 501; ++i) sizes.push_back("8");
  EXPECT_THAT(Expand({{"size", sizes}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 1000 points")));
  sizes.resize(500);
  EXPECT_THAT(*Expand({{"size", sizes}}), SizeIs(1000));
}

}  // namespace
}  // namespace ridgeline::engine::benchmark
