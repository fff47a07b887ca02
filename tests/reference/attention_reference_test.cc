// The reference against answers worked out by hand, and against a second formulation: exponentials without a maximum, in long
// double, over a matrix of logits.
#include "tests/reference/attention_reference.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "tests/reference/plain_attention.h"

namespace ridgeline::reference {
namespace {

using kernels::DataType;
using kernels::attention::AttentionParams;
using kernels::attention::kUnlimitedWindow;
using kernels::attention::Sequence;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::NanSensitiveDoubleEq;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One sequence, one head, head_dim 1 (the reference takes any), values one-hot so that the output shows the weights.
class HandWorkedTest : public ::testing::Test {
 protected:
  HandWorkedTest() {
    params_.shape = {.data_type = DataType::kFloat32,
                     .output_data_type = DataType::kFloat32,
                     .num_sequences = 1,
                     .query_heads = 1,
                     .kv_heads = 1,
                     .head_dim = 1,
                     .value_head_dim = 3};
    params_.scale = 1;
    params_.sequences = &sequence_;
    params_.query = query_.data();
    params_.key = key_.data();
    params_.value = value_.data();
    params_.log_sum_exp = &lse_storage_;
  }

  AttentionResult Attend() const { return reference::Attend(params_); }
  std::vector<std::int64_t> KeysOf(std::int64_t query_idx) const {
    std::vector<std::int64_t> seen;
    for (const VisibleKey& key : VisibleKeys(params_, 0, 0, query_idx)) seen.push_back(key.key_idx);
    return seen;
  }

  Sequence sequence_{.query_begin = 0, .query_tokens = 1, .key_begin = 0, .key_tokens = 3, .lse_begin = 0};
  std::vector<float> query_ = {1, 1, 1, 1, 1};
  std::vector<float> key_ = {std::log(1.0f), std::log(2.0f), std::log(5.0f)};
  std::vector<float> value_ = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  float lse_storage_ = 0;  // shows that log_sum_exp is wanted; never written
  AttentionParams params_{};
};

constexpr double kTolerance = 1e-6;  // log(2) and log(5) are rounded to float32

TEST_F(HandWorkedTest, WeightsAreExponentialsOverTheirSum) {
  const AttentionResult result = Attend();
  EXPECT_NEAR(result.output[0], 1.0 / 8, kTolerance);
  EXPECT_NEAR(result.output[1], 2.0 / 8, kTolerance);
  EXPECT_NEAR(result.output[2], 5.0 / 8, kTolerance);
  EXPECT_NEAR(result.log_sum_exp[0], std::log(8.0), kTolerance);
}

TEST_F(HandWorkedTest, ScaleMultipliesTheProduct) {
  params_.scale = -1;  // weights 1, 1/2, 1/5
  EXPECT_NEAR(Attend().output[2], 0.2 / 1.7, kTolerance);
  params_.scale = 0;
  EXPECT_THAT(Attend().output, ElementsAre(1.0 / 3, 1.0 / 3, 1.0 / 3));
}

TEST_F(HandWorkedTest, SinkJoinsTheDenominatorOnly) {
  const float sink = std::log(8.0f);
  params_.sink_logits = &sink;
  const AttentionResult result = Attend();
  EXPECT_NEAR(result.output[2], 5.0 / 16, kTolerance);
  EXPECT_NEAR(result.log_sum_exp[0], std::log(16.0), kTolerance);
}

TEST_F(HandWorkedTest, RowWithoutKeysIsZeroAndMinusInfinityOrTheSink) {
  sequence_.key_tokens = 0;
  EXPECT_THAT(Attend().output, ElementsAre(0, 0, 0));
  EXPECT_THAT(Attend().log_sum_exp, ElementsAre(-kInfinity));
  float sink = 0.75f;
  params_.sink_logits = &sink;
  EXPECT_THAT(Attend().output, ElementsAre(0, 0, 0));
  EXPECT_THAT(Attend().log_sum_exp, ElementsAre(0.75));
  sink = -kInfinity;
  EXPECT_THAT(Attend().log_sum_exp, ElementsAre(-kInfinity));
}

TEST_F(HandWorkedTest, SoftCapBoundsTheLogit) {
  params_.logit_soft_cap = 2;
  query_[0] = 1e30f;  // products 0, huge, huge: capped to 0, 2, 2
  const double sum = 1 + 2 * std::exp(2.0);
  EXPECT_NEAR(Attend().output[0], 1 / sum, kTolerance);
  EXPECT_NEAR(Attend().log_sum_exp[0], std::log(sum), kTolerance);
}

TEST_F(HandWorkedTest, WeightsSurviveBesideAHugeLogSumExp) {
  query_[0] = 1e30f;
  key_ = {1, 1, 1};
  EXPECT_THAT(Attend().output, ElementsAre(1.0 / 3, 1.0 / 3, 1.0 / 3));
  EXPECT_EQ(Attend().log_sum_exp[0], 1e30f);
}

TEST_F(HandWorkedTest, AlibiCountsFromTheQuerysPosition) {
  const float slope = std::log(2.0f);
  params_.alibi_slopes = &slope;
  // One query stands at key 2: distances 2, 1, 0 halve the weights 1, 2, 5 twice, once, never.
  EXPECT_NEAR(Attend().log_sum_exp[0], std::log(0.25 + 1 + 5), kTolerance);
  // Of three queries the first stands at key 0: distances 0, 1, 2, in both directions alike.
  sequence_.query_tokens = 3;
  EXPECT_NEAR(Attend().log_sum_exp[0], std::log(1 + 1 + 1.25), kTolerance);
}

TEST_F(HandWorkedTest, BiasIsAddedAndMinusInfinityHidesWhateverTheKeyHolds) {
  const float bias[] = {std::log(3.0f), -kInfinity, 0};
  params_.bias = bias;
  params_.bias_row_stride_elems = 3;
  key_[1] = value_[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(KeysOf(0), ElementsAre(0, 2));
  EXPECT_NEAR(Attend().output[0], 3.0 / 8, kTolerance);
}

TEST_F(HandWorkedTest, CausalMaskAlignsToTheBottomRight) {
  params_.shape.window_right = 0;
  sequence_.query_tokens = 2;  // at keys 1 and 2
  EXPECT_THAT(KeysOf(0), ElementsAre(0, 1));
  EXPECT_THAT(KeysOf(1), ElementsAre(0, 1, 2));
  sequence_.query_tokens = 5;  // the first two stand before the first key
  EXPECT_THAT(KeysOf(0), IsEmpty());
  EXPECT_THAT(KeysOf(1), IsEmpty());
  EXPECT_THAT(KeysOf(2), ElementsAre(0));
  EXPECT_THAT(KeysOf(4), ElementsAre(0, 1, 2));
}

TEST_F(HandWorkedTest, WindowsCountKeysOnEachSide) {
  sequence_.query_tokens = 3;
  params_.shape.window_left = 0;
  EXPECT_THAT(KeysOf(1), ElementsAre(1, 2));
  params_.shape.window_right = 0;
  EXPECT_THAT(KeysOf(1), ElementsAre(1));
  params_.shape.window_left = 1;
  EXPECT_THAT(KeysOf(2), ElementsAre(1, 2));
  params_.shape.window_left = kUnlimitedWindow;
  params_.shape.window_right = kUnlimitedWindow;
  EXPECT_THAT(KeysOf(0), ElementsAre(0, 1, 2));
}

TEST_F(HandWorkedTest, VisibleNaNReachesTheAnswer) {
  key_[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(Attend().log_sum_exp, ElementsAre(NanSensitiveDoubleEq(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(Attend().output[1]));
}

TEST_F(HandWorkedTest, QueryHeadsShareKvHeadsInOrder) {
  params_.shape.query_heads = 4;
  params_.shape.kv_heads = 2;
  params_.lse_head_stride_elems = 1;
  sequence_.key_tokens = 1;
  value_ = {1, 2, 3, 4, 5, 6};  // [1 token, 2 KV heads, 3]
  EXPECT_THAT(Attend().output, ElementsAre(1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6));
}

TEST_F(HandWorkedTest, ElementsOfNoSequenceStayNaN) {
  sequence_.query_begin = 1;
  sequence_.lse_begin = 2;
  const AttentionResult result = Attend();
  ASSERT_EQ(result.output.size(), 6u);
  EXPECT_TRUE(std::isnan(result.output[2]));
  EXPECT_NEAR(result.output[5], 5.0 / 8, kTolerance);
  ASSERT_EQ(result.log_sum_exp.size(), 3u);
  EXPECT_TRUE(std::isnan(result.log_sum_exp[1]));
}

// Random inputs with every option at once: a ragged batch of two.
class RandomInputsTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kQueryHeads = 4, kKvHeads = 2, kHeadDim = 8, kValueHeadDim = 5, kTokens = 11;

  RandomInputsTest() {
    for (std::vector<float>* tensor : {&query_, &key_, &value_, &slopes_, &sinks_}) {
      for (float& element : *tensor) element = normal_(random_);
    }
    params_.shape = {.data_type = DataType::kFloat32,
                     .output_data_type = DataType::kFloat32,
                     .num_sequences = 2,
                     .query_heads = kQueryHeads,
                     .kv_heads = kKvHeads,
                     .head_dim = kHeadDim,
                     .value_head_dim = kValueHeadDim,
                     .window_left = 4,
                     .window_right = 1};
    params_.scale = 0.7f;
    params_.logit_soft_cap = 1.25f;
    params_.sequences = sequences_;
    params_.query = query_.data();
    params_.key = key_.data();
    params_.value = value_.data();
    params_.alibi_slopes = slopes_.data();
    params_.sink_logits = sinks_.data();
    params_.log_sum_exp = &lse_storage_;
    params_.lse_head_stride_elems = kTokens;
  }

  long double Dot(std::int64_t query_token, std::int64_t h, std::int64_t key_token) const {
    long double sum = 0;
    for (std::int64_t d = kHeadDim - 1; d >= 0; --d) {
      sum += static_cast<long double>(query_[(query_token * kQueryHeads + h) * kHeadDim + d]) *
             key_[(key_token * kKvHeads + h / 2) * kHeadDim + d];
    }
    return sum;
  }

  // exp of a logit, 0 if masked: one element of the matrix whose rows are the weights.
  long double Weight(const Sequence& sequence, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const std::int64_t distance = i - j + sequence.key_tokens - sequence.query_tokens;  // keys to the left are positive
    if (distance > params_.shape.window_left || -distance > params_.shape.window_right) return 0;
    const long double cap = params_.logit_soft_cap;
    const long double logit = cap * std::tanh(params_.scale * Dot(sequence.query_begin + i, h, sequence.key_begin + j) / cap);
    return std::exp(logit - slopes_[h] * static_cast<long double>(distance < 0 ? -distance : distance));
  }

  std::mt19937_64 random_{7};
  std::normal_distribution<float> normal_;
  std::vector<float> query_ = std::vector<float>(kTokens * kQueryHeads * kHeadDim);
  std::vector<float> key_ = std::vector<float>(kTokens * kKvHeads * kHeadDim);
  std::vector<float> value_ = std::vector<float>(kTokens * kKvHeads * kValueHeadDim);
  std::vector<float> slopes_ = std::vector<float>(kQueryHeads);
  std::vector<float> sinks_ = std::vector<float>(kQueryHeads);
  Sequence sequences_[2] = {
      {.query_begin = 0, .query_tokens = 4, .key_begin = 0, .key_tokens = 6, .lse_begin = 0},
      {.query_begin = 4, .query_tokens = 7, .key_begin = 6, .key_tokens = 5, .lse_begin = 4},
  };
  float lse_storage_ = 0;
  AttentionParams params_{};
};

TEST_F(RandomInputsTest, AgreeWithASecondFormulation) {
  const AttentionResult result = Attend(params_);
  for (const Sequence& sequence : sequences_) {
    for (std::int64_t h = 0; h < kQueryHeads; ++h) {
      for (std::int64_t i = 0; i < sequence.query_tokens; ++i) {
        long double denominator = std::exp(static_cast<long double>(sinks_[h]));
        std::vector<long double> numerator(kValueHeadDim);
        for (std::int64_t j = 0; j < sequence.key_tokens; ++j) {
          const long double weight = Weight(sequence, h, i, j);
          denominator += weight;
          for (std::int64_t d = 0; d < kValueHeadDim; ++d) {
            numerator[d] += weight * value_[((sequence.key_begin + j) * kKvHeads + h / 2) * kValueHeadDim + d];
          }
        }
        const std::int64_t token = sequence.query_begin + i;
        EXPECT_NEAR(result.log_sum_exp[h * kTokens + token], static_cast<double>(std::log(denominator)), 1e-13);
        for (std::int64_t d = 0; d < kValueHeadDim; ++d) {
          EXPECT_NEAR(result.output[(token * kQueryHeads + h) * kValueHeadDim + d],
                      static_cast<double>(numerator[d] / denominator), 1e-13);
        }
      }
    }
  }
}

TEST_F(RandomInputsTest, PlainAttentionIsCloseByAndNotEqual) {
  const AttentionResult exact = Attend(params_);
  const PlainAttentionResult plain = AttendPlainly(params_);
  double largest_error = 0;
  for (std::size_t i = 0; i < exact.output.size(); ++i) {
    const double got = Load(DataType::kFloat32, plain.output.data(), static_cast<std::int64_t>(i));
    largest_error = std::fmax(largest_error, std::abs(got - exact.output[i]));
  }
  for (std::size_t i = 0; i < exact.log_sum_exp.size(); ++i) EXPECT_NEAR(plain.log_sum_exp[i], exact.log_sum_exp[i], 1e-6);
  EXPECT_GT(largest_error, 1e-9);  // rounds to float32 on the way
  EXPECT_LT(largest_error, 1e-6);
}

TEST(PlainAttentionTest, RoundsProbabilitiesToTheInputType) {
  // Three equal logits: P = 1/3 is 0.333984375 in bfloat16, so the average of ones isn't one.
  const std::vector<std::uint16_t> ones(3 * 8, 0x3f80);
  const Sequence sequence{.query_begin = 0, .query_tokens = 1, .key_begin = 0, .key_tokens = 3, .lse_begin = 0};
  AttentionParams params{};
  params.shape = {.data_type = DataType::kBFloat16,
                  .output_data_type = DataType::kFloat32,
                  .num_sequences = 1,
                  .query_heads = 1,
                  .kv_heads = 1,
                  .head_dim = 8,
                  .value_head_dim = 8};
  params.scale = 1;
  params.sequences = &sequence;
  params.query = params.key = params.value = ones.data();
  EXPECT_EQ(Load(DataType::kFloat32, AttendPlainly(params).output.data(), 7), 3 * 0.333984375);
}

}  // namespace
}  // namespace ridgeline::reference
