// Every SIMD target that this build contains and this processor can run.
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kernels/common/data_type.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/op_info.h"
#include "tests/support/attention_case.h"
#include "tests/support/fused_case.h"
#include "tests/support/fused_shapes.h"
#include "tests/unit/kernels/fused_runner.h"

namespace ridgeline::kernels::fused {
namespace {

void UseOnly(std::int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

class FusedTargetsTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { UseOnly(GetParam()); }
  void TearDown() override { UseOnly(0); }
};

INSTANTIATE_TEST_SUITE_P(All, FusedTargetsTest, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

TEST_P(FusedTargetsTest, RowOperations) {
  for (const DataType type : support::kFusedTypes) {
    for (const Op op : support::RowOps()) {
      for (const support::RowsByColumns& size : {support::RowsByColumns{3, 1}, {3, 17}, {2, 300}, {1, 5000}}) {
        for (const FusedShape& shape : support::VariantsOf(support::ShapeOf(op, type, size))) {
          support::FusedCase fused_case(shape, support::DeriveSeed("targets", size.columns));
          for (const Mode mode : support::kFusedModes) EXPECT_TRUE(IsRight(fused_case, mode));
        }
      }
    }
  }
}

TEST_P(FusedTargetsTest, RotaryEmbeddings) {
  for (const DataType type : support::kFusedTypes) {
    for (const FusedShape& shape : support::RopeShapes(type)) {
      support::FusedCase fused_case(shape, support::DeriveSeed("targets"));
      for (const Mode mode : support::kFusedModes) EXPECT_TRUE(IsRight(fused_case, mode));
    }
  }
}

}  // namespace
}  // namespace ridgeline::kernels::fused
