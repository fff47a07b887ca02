// The judgement of fused operations must catch every fault planted here.
#include "tests/support/fused_case.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/common/data_type.h"
#include "kernels/fused/fused.h"
#include "tests/reference/attention_reference.h"
#include "tests/support/fused_shapes.h"

namespace ridgeline::support {
namespace {

using kernels::DataType;
using kernels::fused::FusedParams;
using kernels::fused::FusedShape;
using kernels::fused::Mode;
using kernels::fused::Op;
using ::testing::HasSubstr;

// A case whose outputs are the reference's, rounded.
FusedCase RightCase(const FusedShape& shape) {
  FusedCase fused_case(shape, 7);
  const FusedParams& params = fused_case.params();
  const reference::FusedResult& want = fused_case.want();
  const auto store = [&shape](const std::vector<double>& values, void* to) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      reference::Store(shape.data_type, static_cast<float>(values[i]), to, static_cast<std::int64_t>(i));
    }
  };
  store(want.output, params.output);
  store(want.residual_output, params.residual_output);
  if (params.mask_output != nullptr) std::ranges::copy(want.mask, params.mask_output);
  return fused_case;
}

class FusedCaseTest : public ::testing::TestWithParam<Op> {
 protected:
  FusedCase fused_case_ = RightCase(ShapeOf(GetParam(), DataType::kBFloat16, {4, 33}));
  void Set(void* tensor, std::int64_t idx, double value) {
    reference::Store(DataType::kBFloat16, static_cast<float>(value), tensor, idx);
  }
};

INSTANTIATE_TEST_SUITE_P(Ops, FusedCaseTest, ::testing::ValuesIn(RowOps()));

TEST_P(FusedCaseTest, PassesTheReference) {
  for (const Mode mode : kFusedModes) EXPECT_TRUE(fused_case_.IsRight(mode));
}

TEST_P(FusedCaseTest, CatchesOneWrongElement) {
  const double right = fused_case_.output()[70];
  Set(fused_case_.params().output, 70, right + 0.25 * (std::abs(right) + 1));
  for (const Mode mode : kFusedModes) EXPECT_THAT(fused_case_.IsRight(mode).message(), HasSubstr("worst at [2, 4]"));
}

TEST_P(FusedCaseTest, CatchesAnUnwrittenElement) {
  static_cast<std::uint16_t*>(fused_case_.params().output)[131] = 0xffff;
  EXPECT_FALSE(fused_case_.IsRight(Mode::kFused));
}

TEST_P(FusedCaseTest, CatchesRowsSwapped) {
  auto* const output = static_cast<std::uint16_t*>(fused_case_.params().output);
  std::swap_ranges(output, output + 33, output + 33);
  EXPECT_FALSE(fused_case_.IsRight(Mode::kFused));
}

TEST_P(FusedCaseTest, CatchesAChangedInput) {
  Set(const_cast<void*>(fused_case_.params().input), 5, 100);
  EXPECT_THAT(fused_case_.IsRight(Mode::kFused).message(), HasSubstr("wrote to an input"));
}

TEST_P(FusedCaseTest, CatchesAWriteBeyondTheOutput) {
  if (GuardedBuffer::IsWatched()) GTEST_SKIP() << "the address sanitizer would stop the test at the planted write";
  static_cast<std::uint16_t*>(fused_case_.params().output)[4 * 33] = 0;
  EXPECT_THAT(fused_case_.IsRight(Mode::kFused).message(), HasSubstr("past the end"));
}

TEST(FusedCaseMaskTest, CatchesOneFlippedElement) {
  FusedCase fused_case = RightCase(ShapeOf(Op::kLayerNormGeluDropout, DataType::kFloat32, {4, 33}));
  EXPECT_TRUE(fused_case.IsRight(Mode::kFused));
  fused_case.params().mask_output[9] ^= 1;
  EXPECT_THAT(fused_case.IsRight(Mode::kFused).message(), HasSubstr("mask"));
}

TEST(FusedCaseResidualTest, CatchesASumThatIsNotWritten) {
  FusedCase fused_case = RightCase(ShapeOf(Op::kAddRmsNorm, DataType::kFloat32, {4, 33}));
  EXPECT_TRUE(fused_case.IsRight(Mode::kFused));
  static_cast<float*>(fused_case.params().residual_output)[131] += 1;
  EXPECT_THAT(fused_case.IsRight(Mode::kFused).message(), HasSubstr("residual"));
}

// Pages that nobody filled: keys are missing.
TEST(FusedCasePagesTest, CatchesKeysThatAreNotAppended) {
  FusedShape shape = RopeShapes(DataType::kFloat32)[2];
  shape.op = Op::kRopeAppend;
  FusedCase fused_case(shape, 7);
  fused_case.Append(4, {{.row_begin = 1, .num_tokens = 3, .table_begin = 0, .token_begin = 2}});
  const FusedParams& params = fused_case.params();
  const std::vector<double>& output = fused_case.want().output;
  for (std::size_t i = 0; i < output.size(); ++i) static_cast<float*>(params.output)[i] = static_cast<float>(output[i]);
  EXPECT_THAT(fused_case.IsRight(Mode::kFused).message(), HasSubstr("values"));
}

}  // namespace
}  // namespace ridgeline::support
