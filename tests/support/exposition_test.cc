#include "tests/support/exposition.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::support {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Exposition, FamiliesHaveTypesLabelsAndSamples) {
  const Exposition families = ParseExposition(
      "# HELP a_total Things, all of them.\n# TYPE a_total counter\na_total{kind=\"x,y=\\\"z\\\"\",of=\"b\"} "
      "2\na_total{kind=\"w\"} 1\n"
      "# HELP s Time.\n# TYPE s histogram\n"
      "s_bucket{m=\"1\",le=\"0.1\"} 1\ns_bucket{m=\"1\",le=\"+Inf\"} 2\ns_sum{m=\"1\"} 3\ns_count{m=\"1\"} 2\n"
      "# HELP s_count Not of the histogram's type.\n# TYPE g gauge\ng 4 1700000000\nnonsense\n");
  EXPECT_EQ(families.at("a_total").type, "counter");
  EXPECT_EQ(families.at("a_total").help, "Things, all of them.");
  EXPECT_THAT(families.at("a_total").labels, ElementsAre("kind", "of"));
  EXPECT_EQ(families.at("a_total").num_samples, 2);
  EXPECT_THAT(families.at("s").labels, ElementsAre("m"));
  EXPECT_EQ(families.at("s").num_samples, 4);
  EXPECT_THAT(families.at("s").buckets, ElementsAre(::testing::Pair("m=\"1\",", 2)));
  EXPECT_THAT(families.at("g").labels, IsEmpty());
  EXPECT_EQ(families.at("g").num_samples, 1);
  EXPECT_EQ(families.count("nonsense"), 0);
}

TEST(Exposition, ASampleIsFoundByItsWholeName) {
  const char text[] = "# HELP a Of a.\na 3\nab 4\na{b=\"c\"} 5e3\nbroken x\n";
  EXPECT_EQ(SampleOf(text, "a"), 3);
  EXPECT_EQ(SampleOf(text, "a{b=\"c\"}"), 5000);
  EXPECT_EQ(SampleOf(text, "b"), std::nullopt);
  EXPECT_EQ(SampleOf(text, "broken"), std::nullopt);
}

TEST(MarkdownCells, AreTrimmed) {
  EXPECT_THAT(MarkdownCells("| `a` |  | b c |"), ElementsAre("`a`", "", "b c"));
  EXPECT_THAT(MarkdownCells("no row"), IsEmpty());
}

}  // namespace
}  // namespace ridgeline::support
