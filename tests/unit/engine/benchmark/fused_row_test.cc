// The check of fused results, against the tests' own reference.
#include "server/engine/benchmark/fused_row.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/fused/op_info.h"
#include "tests/reference/fused_reference.h"
#include "tests/support/fused_case.h"

namespace ridgeline::engine::benchmark {
namespace {

using kernels::DataType;
using kernels::fused::FusedShape;
using kernels::fused::Mode;
using kernels::fused::Op;
using kernels::fused::OpInfo;
using kernels::fused::Use;

class FusedRowTest : public ::testing::TestWithParam<Op> {
 protected:
  static FusedShape ShapeOf(Op op) {
    const OpInfo& info = kernels::fused::InfoOf(op);
    FusedShape shape;
    shape.op = op;
    shape.num_rows = 5;
    shape.row_elems = 48;
    shape.has_weight = info.weight != Use::kNone;
    shape.has_bias = info.bias != Use::kNone;
    shape.dropout = {.probability = 0.3, .seed = 9, .offset = 2};
    shape.rope.head_dim = shape.rope.rotary_dim = 16;
    return shape;
  }
  static const float* Floats(const void* tensor, std::int64_t begin = 0) {
    return tensor == nullptr ? nullptr : static_cast<const float*>(tensor) + begin;
  }
};

INSTANTIATE_TEST_SUITE_P(Ops, FusedRowTest,
                         ::testing::Values(Op::kLayerNorm, Op::kRmsNorm, Op::kSoftmax, Op::kGelu, Op::kBiasGelu, Op::kGeluAdd,
                                           Op::kLayerNormGeluDropout, Op::kSwiglu, Op::kRope),
                         [](const auto& op) { return std::string(kernels::fused::Name(op.param)); });

TEST_P(FusedRowTest, IsTheReferencesRow) {
  support::FusedCase reference(ShapeOf(GetParam()), 11);
  const kernels::fused::FusedParams& params = reference.params();
  for (std::int64_t row = 0; row < 5; ++row) {
    const std::vector<FusedElement> got = FusedRow(params.shape, {.input = Floats(params.input, row * 48),
                                                                  .other = Floats(params.other, row * 48),
                                                                  .weight = Floats(params.weight),
                                                                  .bias = Floats(params.bias),
                                                                  .row_idx = row});
    for (std::size_t i = 0; i < 48; ++i) {
      const double want = reference.want().output[row * 48 + i];
      EXPECT_NEAR(got[i].value, want, 1e-7 * std::abs(want) + 1e-12) << "row " << row << ", column " << i;
    }
  }
}

TEST(FusedToleranceTest, TakesARoundingAndNotAWrongElement) {
  FusedShape shape;
  shape.data_type = DataType::kBFloat16;
  const FusedElement want{.value = 1, .magnitude = 2};
  const double fused = FusedTolerance(shape, Mode::kFused, want);
  EXPECT_GT(fused, 0x1p-8);
  EXPECT_LT(fused, 0x1p-7);
  EXPECT_GT(FusedTolerance(shape, Mode::kUnfused, want), fused);
  EXPECT_LT(FusedTolerance(shape, Mode::kUnfused, want), 0.1);
  shape.data_type = DataType::kFloat32;
  EXPECT_LT(FusedTolerance(shape, Mode::kUnfused, want), 1e-4);
}

}  // namespace
}  // namespace ridgeline::engine::benchmark
