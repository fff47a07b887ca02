// Logits of any size that float32 holds.
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"
#include "tests/support/comparator.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

using support::AttentionCase;
using support::AttentionOptions;
using support::DenseProblem;
using support::DeriveSeed;

// One head; every product q·k is q_0·k_0 + q_1·k_1, exact in float32, and scale is 1.
class AttentionExtremesTest : public ::testing::TestWithParam<std::tuple<Algorithm, DataType>> {
 protected:
  static constexpr std::int64_t kHeadDim = 8;

  Algorithm algorithm() const { return std::get<0>(GetParam()); }
  DataType type() const { return std::get<1>(GetParam()); }

  static AttentionOptions Unscaled() {
    AttentionOptions options;
    options.scale = 1;
    return options;
  }

  static void SetRow(support::TestTensor& tensor, std::int64_t token, double first, double second) {
    for (std::int64_t d = 0; d < kHeadDim; ++d) tensor.Set(token * kHeadDim + d, d == 0 ? first : d == 1 ? second : 0);
  }

  // Errors as for small logits: products that float32 holds exactly leave nothing to round.
  void ExpectRightAsForSmallLogits(AttentionCase& attention_case) {
    ASSERT_TRUE(RunKernel(algorithm(), attention_case.params()));
    const std::vector<double> got = AnswerOf(attention_case);
    std::vector<double> want = attention_case.expected().output;
    const std::vector<double>& lse = attention_case.expected().log_sum_exp;
    const double output_bound = type() == DataType::kFloat32 ? 2e-5 : type() == DataType::kFloat16 ? 0x1p-9 : 0x1p-6;
    std::vector<double> bound(want.size(), output_bound);
    for (const double element : lse) {
      want.push_back(element);
      bound.push_back(1e-5 + std::abs(element) * 0x1p-23);
    }
    EXPECT_TRUE(
        support::AllWithin(got, want, bound, {.name = attention_case.name(), .shape = {}, .seed = attention_case.seed()}));
  }
};

INSTANTIATE_TEST_SUITE_P(All, AttentionExtremesTest,
                         ::testing::Combine(::testing::ValuesIn(kAlgorithms), ::testing::ValuesIn(support::kAttentionTypes)),
                         [](const auto& param) {
                           return std::string(Name(std::get<0>(param.param))) + "_" + Name(std::get<1>(param.param));
                         });

// 1024 * 976 is 999424: exact in every type, and so are its neighbours. A large common part cancels in the softmax and must not
// cost the small differences, on which alone the weights depend.
TEST_P(AttentionExtremesTest, MillionsCancel) {
  for (const double sign : {1.0, -1.0}) {
    AttentionCase attention_case(DenseProblem(1, 5, 200, 1, 1, kHeadDim, kHeadDim), Unscaled(), type(), DeriveSeed("million"));
    for (std::int64_t i = 0; i < 5; ++i) SetRow(attention_case.query(), i, 1024, 1);
    for (std::int64_t j = 0; j < 200; ++j) {
      SetRow(attention_case.key(), j, sign * 976, static_cast<double>(j * 7 % 5));
    }
    ExpectRightAsForSmallLogits(attention_case);
  }
}

// A row in which one key stands a million above or below all others.
TEST_P(AttentionExtremesTest, MillionsApart) {
  for (const double spike : {976.0, -976.0}) {
    AttentionCase attention_case(DenseProblem(1, 5, 200, 1, 1, kHeadDim, kHeadDim), Unscaled(), type(), DeriveSeed("spike"));
    for (std::int64_t i = 0; i < 5; ++i) SetRow(attention_case.query(), i, 1024, 1);
    for (std::int64_t j = 0; j < 200; ++j) SetRow(attention_case.key(), j, j == 131 ? spike : 0, static_cast<double>(j % 3));
    ExpectRightAsForSmallLogits(attention_case);
  }
}

// Just inside float32's range: their differences are outside. Every finite stand-in for -inf is larger than these.
TEST_P(AttentionExtremesTest, LogitsAtTheEndsOfFloat32) {
  const double query = type() == DataType::kFloat16 ? 0x1p15 : 0x1p64;  // float16 itself ends the range earlier
  const double key = type() == DataType::kFloat16 ? 0x1.fp15 : 0x1.fp63;
  for (const bool all_negative : {false, true}) {
    AttentionCase attention_case(DenseProblem(1, 5, 200, 1, 1, kHeadDim, kHeadDim), Unscaled(), type(), DeriveSeed("ends"));
    for (std::int64_t i = 0; i < 5; ++i) SetRow(attention_case.query(), i, query, 0);
    for (std::int64_t j = 0; j < 200; ++j) {
      SetRow(attention_case.key(), j, all_negative || j % 3 != 0 ? -key : key, 0);
    }
    ExpectRightAsForSmallLogits(attention_case);
  }
}

// Without a cap these products would overflow to infinity; with one they are the cap.
TEST_P(AttentionExtremesTest, SoftCapSaturates) {
  AttentionOptions options = Unscaled();
  options.logit_soft_cap = 3;
  const double huge = type() == DataType::kFloat16 ? 60000 : 0x1p100;
  AttentionCase attention_case(DenseProblem(1, 5, 200, 1, 1, kHeadDim, kHeadDim), options, type(), DeriveSeed("cap"));
  for (std::int64_t i = 0; i < 5; ++i) SetRow(attention_case.query(), i, huge, 0);
  for (std::int64_t j = 0; j < 200; ++j) SetRow(attention_case.key(), j, (j % 3 - 1) * huge, 0);
  ExpectRightAsForSmallLogits(attention_case);
}

// A large scale times a query leaves float32's range; a large scale times their small product does not.
TEST_P(AttentionExtremesTest, LargeScaleOfSmallProducts) {
  const bool is_float16 = type() == DataType::kFloat16;  // whose products are never that small
  AttentionOptions options;
  options.scale = is_float16 ? 0x1p40 : 0x1p100;
  const double query = is_float16 ? 0x1p-20 : 0x1p30;
  const double key = is_float16 ? 0x1p-20 : 0x1p-125;
  AttentionCase attention_case(DenseProblem(1, 11, 200, 1, 1, kHeadDim, kHeadDim), options, type(), DeriveSeed("scale"));
  for (std::int64_t i = 0; i < 11; ++i) SetRow(attention_case.query(), i, query, -query);
  for (std::int64_t j = 0; j < 200; ++j) {
    SetRow(attention_case.key(), j, static_cast<double>(j % 5) * key, static_cast<double>(j % 3) * key);
  }
  ExpectRightAsForSmallLogits(attention_case);
}

TEST_P(AttentionExtremesTest, SinkFarAboveAndFarBelowTheLogits) {
  for (const double sink : {1e6, -1e6, 3e38, -3e38}) {
    AttentionOptions options = Unscaled();
    options.sink = support::Sink::kFinite;
    AttentionCase attention_case(DenseProblem(1, 5, 70, 1, 1, kHeadDim, kHeadDim), options, type(), DeriveSeed("sink"));
    attention_case.sink_logits().Set(0, sink);
    ExpectRightAsForSmallLogits(attention_case);
  }
}

TEST_P(AttentionExtremesTest, AlibiFarAway) {
  AttentionOptions options = Unscaled();
  options.alibi = true;
  AttentionCase attention_case(DenseProblem(1, 3, 400, 1, 1, kHeadDim, kHeadDim), options, type(), DeriveSeed("alibi"));
  for (const double slope : {1e4, -1e4, 0.0}) {
    AttentionCase with_slope(attention_case.problem(), options, type(), attention_case.seed());
    with_slope.alibi_slopes().Set(0, slope);
    EXPECT_TRUE(IsRight(algorithm(), with_slope)) << slope;
  }
}

}  // namespace
}  // namespace ridgeline::kernels::attention
