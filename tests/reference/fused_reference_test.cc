// The reference against values worked out by hand or known from elsewhere.
#include "tests/reference/fused_reference.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/common/data_type.h"
#include "kernels/fused/fused.h"

namespace ridgeline::reference {
namespace {

using kernels::DataType;
using kernels::fused::DropoutOptions;
using kernels::fused::FusedParams;
using kernels::fused::GeluForm;
using kernels::fused::Op;
using kernels::fused::RopeLayout;
using ::testing::DoubleNear;
using ::testing::ElementsAre;

constexpr double kExact = 1e-12;

// Two rows of two elements, float32.
FusedParams Params(Op op, const std::vector<float>& input) {
  FusedParams params;
  params.shape = {
      .op = op, .data_type = DataType::kFloat32, .num_rows = 2, .row_elems = 2, .epsilon = 0, .dropout = {}, .rope = {}};
  params.input = input.data();
  return params;
}

TEST(FusedReferenceTest, NormalizesRows) {
  const std::vector<float> input = {1, 3, -2, 6}, weight = {2, 3}, bias = {10, 20};
  FusedParams params = Params(Op::kLayerNorm, input);
  EXPECT_THAT(Fuse(params).output, ElementsAre(-1, 1, -1, 1));
  params.shape.has_weight = params.shape.has_bias = true;
  params.weight = weight.data();
  params.bias = bias.data();
  EXPECT_THAT(Fuse(params).output, ElementsAre(8, 23, 8, 23));
  params.shape.has_weight = false;
  params.shape.op = Op::kRmsNorm;  // which has no bias
  EXPECT_THAT(Fuse(params).output,
              ElementsAre(DoubleNear(1 / std::sqrt(5.0), kExact), DoubleNear(3 / std::sqrt(5.0), kExact),
                          DoubleNear(-2 / std::sqrt(20.0), kExact), DoubleNear(6 / std::sqrt(20.0), kExact)));
}

TEST(FusedReferenceTest, AddsTheResidualFirst) {
  const std::vector<float> input = {1, 3, -2, 6}, residual = {1, 1, 2, 2};
  FusedParams params = Params(Op::kAddLayerNorm, input);
  params.other = residual.data();
  const FusedResult result = Fuse(params);
  EXPECT_THAT(result.residual_output, ElementsAre(2, 4, 0, 8));
  EXPECT_THAT(result.output, ElementsAre(-1, 1, -1, 1));
}

TEST(FusedReferenceTest, Softmax) {
  const std::vector<float> input = {1000, 1000, 0, std::numbers::ln2_v<float>};
  EXPECT_THAT(Fuse(Params(Op::kSoftmax, input)).output,
              ElementsAre(0.5, 0.5, DoubleNear(1.0 / 3, 1e-7), DoubleNear(2.0 / 3, 1e-7)));
}

// From tables of the normal distribution; the tanh form by its formula in other words.
TEST(FusedReferenceTest, Gelu) {
  EXPECT_NEAR(Gelu(GeluForm::kErf, 1), 0.841344746068543, kExact);
  EXPECT_NEAR(Gelu(GeluForm::kErf, -3), -3 * 0.00134989803163009, kExact);
  EXPECT_NEAR(Gelu(GeluForm::kTanh, 2), 1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (2 + 0.044715 * 8)), kExact);
  EXPECT_TRUE(std::isnan(Gelu(GeluForm::kErf, -std::numeric_limits<double>::infinity())));
  EXPECT_TRUE(std::isnan(Gelu(GeluForm::kTanh, -std::numeric_limits<double>::infinity())));
}

TEST(FusedReferenceTest, Swiglu) {
  const std::vector<float> gate = {0, std::numbers::ln2_v<float>, 1, 1}, up = {5, 3, 0, 0};
  FusedParams params = Params(Op::kSwiglu, gate);
  params.other = up.data();
  EXPECT_THAT(Fuse(params).output, ElementsAre(0, DoubleNear(2 * std::numbers::ln2, 1e-6), 0, 0));
}

// A quarter turn, and none.
TEST(FusedReferenceTest, Rope) {
  const std::vector<float> input = {1, 2, 3, 4};
  const std::vector<std::int64_t> positions = {1, 0};
  FusedParams params = Params(Op::kRope, input);
  params.shape.rope = {.layout = RopeLayout::kInterleaved, .head_dim = 2, .rotary_dim = 2};
  params.shape.has_positions = true;
  params.positions = positions.data();
  const double cosine = std::cos(1.0), sine = std::sin(1.0);
  EXPECT_THAT(Fuse(params).output,
              ElementsAre(DoubleNear(cosine - 2 * sine, kExact), DoubleNear(sine + 2 * cosine, kExact), 3, 4));
}

// The known answer of Philox4x32-10 for a counter and a key of zeros begins with 6627e8d5 e169c58d (Random123's kat_vectors):
// the bits of the first four elements are e8d5, 6627, c58d, e169.
TEST(FusedReferenceTest, DropoutBits) {
  const auto kept = [](double probability) {
    std::vector<bool> elements;
    for (std::int64_t i = 0; i < 4; ++i) elements.push_back(IsKept({.probability = probability, .seed = 0, .offset = 0}, i));
    return elements;
  };
  EXPECT_THAT(kept(0x6627 / 65536.0), ElementsAre(true, true, true, true));
  EXPECT_THAT(kept(0x6628 / 65536.0), ElementsAre(true, false, true, true));
  EXPECT_THAT(kept(0xc58e / 65536.0), ElementsAre(true, false, false, true));
  EXPECT_THAT(kept(0xe16a / 65536.0), ElementsAre(true, false, false, false));
  EXPECT_THAT(kept(0xe8d6 / 65536.0), ElementsAre(false, false, false, false));
}

}  // namespace
}  // namespace ridgeline::reference
