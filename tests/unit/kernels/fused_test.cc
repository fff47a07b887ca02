// Every fused operation, type, mode and length against the reference.
#include "kernels/fused/fused.h"

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/data_type.h"
#include "kernels/fused/op_info.h"
#include "tests/support/attention_case.h"
#include "tests/support/fused_case.h"
#include "tests/support/fused_shapes.h"
#include "tests/unit/kernels/fused_runner.h"

namespace ridgeline::kernels::fused {
namespace {

using support::FusedCase;

class FusedTest : public ::testing::TestWithParam<std::tuple<Op, DataType>> {
 protected:
  static Op op() { return std::get<0>(GetParam()); }
  static DataType type() { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(All, FusedTest,
                         ::testing::Combine(::testing::ValuesIn(support::RowOps()), ::testing::ValuesIn(support::kFusedTypes)),
                         [](const auto& row) {
                           return std::string(Name(std::get<0>(row.param))) + "_" + Name(std::get<1>(row.param));
                         });

TEST_P(FusedTest, EveryLength) {
  for (const support::RowsByColumns& size : support::FusedSizes()) {
    FusedCase fused_case(support::ShapeOf(op(), type(), size), support::DeriveSeed("lengths", size.columns));
    EXPECT_TRUE(IsRight(fused_case, Mode::kFused));
  }
}

TEST_P(FusedTest, EveryVariantInBothModesAnywhere) {
  for (const support::RowsByColumns& size : support::FewFusedSizes()) {
    for (const FusedShape& shape : support::VariantsOf(support::ShapeOf(op(), type(), size))) {
      FusedCase fused_case(shape, support::DeriveSeed("variants", size.columns));
      for (const Mode mode : support::kFusedModes) {
        for (const Placement placement : {Placement::kWords, Placement::kAlike, Placement::kAnywhere}) {
          EXPECT_TRUE(IsRight(fused_case, mode, placement)) << static_cast<int>(placement);
        }
      }
    }
  }
}

TEST_P(FusedTest, LongRowsUnfused) {
  for (const support::RowsByColumns& size : {support::RowsByColumns{2, 32769}, {1, 262144}}) {
    FusedCase fused_case(support::ShapeOf(op(), type(), size), support::DeriveSeed("unfused", size.columns));
    EXPECT_TRUE(IsRight(fused_case, Mode::kUnfused));
  }
}

// More rows than a grid has blocks at a time, and a whole number of none of its units.
TEST_P(FusedTest, ManyRows) {
  for (const support::RowsByColumns& size : {support::RowsByColumns{70001, 5}, {5003, 72}}) {
    FusedCase fused_case(support::ShapeOf(op(), type(), size), support::DeriveSeed("rows", size.columns));
    EXPECT_TRUE(IsRight(fused_case, Mode::kFused));
  }
}

}  // namespace
}  // namespace ridgeline::kernels::fused
