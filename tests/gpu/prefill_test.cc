// The Hopper prefill kernel where its softmax has to do blocks again, at both ends of what each type holds, and where outputs
// have to be repaired. What it has in common with other kernels the attention suites test, with RIDGELINE_TEST_PREFILL=1.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/prefill_sm90/prefill_plan_cuda.h"
#include "kernels/common/data_type.h"
#include "tests/gpu/gpu.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"
#include "tests/support/test_tensor.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

using support::AttentionCase;
using support::AttentionOptions;
using support::DenseProblem;

class PrefillTest : public ::testing::TestWithParam<std::tuple<DataType, int>> {
 protected:
  static constexpr std::int64_t kQueries = 150, kKeys = 700;

  DataType type() const { return std::get<0>(GetParam()); }
  std::int64_t head_dim() const { return std::get<1>(GetParam()); }

  void SetUp() override {
    AttentionCase any(DenseProblem(1, kQueries, kKeys, 1, 1, head_dim(), head_dim()), AttentionOptions(), type(), /*seed=*/1);
    const AttentionParams params = any.params();
    const std::string why_not = WhyNotPrefill(params.shape, params.sequences, gpu::Limits());
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }

  ::testing::AssertionResult Run(AttentionCase& attention_case) {
    const AttentionParams params = attention_case.params();
    AttentionPlan plan = {};
    plan.algorithm = Algorithm::kFlash;
    PlanPrefillOnCuda(params.shape, params.sequences, gpu::Limits(), plan);
    plan.prefill.num_blocks = 1;  // so that tiles follow one another, though they are few
    return RunKernel(plan, params);
  }

  // Random inputs; causal or not, and rows of a bias that begin at multiples of 8 bytes and at others. Queries and bias are
  // half as large as elsewhere, lest one key weigh a large part of a row: its weight is rounded, as OneKeyOutweighsAll tests
  // it, and the largest error would be that of one rounding.
  void ExpectRight(const std::string& name, AttentionOptions options) {
    for (const std::int64_t keys : {kKeys, kKeys + 1}) {
      if (keys > kKeys && options.bias == support::Bias::kNone) break;
      for (const bool causal : {false, true}) {
        options.causal = causal;
        options.name = name + (causal ? "_causal" : "");
        AttentionCase attention_case(DenseProblem(1, kQueries, keys, 2, 1, head_dim(), head_dim()), options, type(),
                                     support::DeriveSeed(name));
        for (support::TestTensor* const tensor : {&attention_case.query(), &attention_case.bias()}) {
          for (std::int64_t i = 0; i < tensor->elements(); ++i) tensor->Set(i, tensor->Get(i) / 2);
        }
        ASSERT_TRUE(Run(attention_case)) << name;
        EXPECT_TRUE(attention_case.RunWasClean()) << name;
        EXPECT_TRUE(attention_case.AnswerIsRight()) << name << ", " << keys << " keys";
      }
    }
  }

  // Logits that depend on the key, times a factor that depends on the query, and random values; causal or not.
  void ExpectRight(
      const std::string& name, const std::function<double(std::int64_t key)>& logit, std::int64_t num_keys = kKeys,
      const std::function<double(std::int64_t query)>& factor = [](std::int64_t) { return 1; }) {
    for (const bool causal : {false, true}) {
      AttentionOptions options;
      options.scale = 1;
      options.causal = causal;
      options.name = name + (causal ? "_causal" : "");
      AttentionCase attention_case(DenseProblem(1, kQueries, num_keys, 1, 1, head_dim(), head_dim()), options, type(),
                                   support::DeriveSeed(name));
      for (std::int64_t i = 0; i < attention_case.query().elements(); ++i) {
        attention_case.query().Set(i, i % head_dim() == 0 ? factor(i / head_dim()) : 0);
      }
      for (std::int64_t j = 0; j < num_keys; ++j) attention_case.key().Set(j * head_dim(), logit(j));
      ASSERT_TRUE(Run(attention_case)) << name;
      EXPECT_TRUE(attention_case.RunWasClean()) << name;
      EXPECT_TRUE(attention_case.AnswerIsRight()) << name;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, PrefillTest,
                         ::testing::Combine(::testing::Values(DataType::kFloat16, DataType::kBFloat16),
                                            ::testing::Values(64, 96, 128, 192, 256)),
                         [](const auto& param) {
                           return std::string(Name(std::get<0>(param.param))) + "_d" + std::to_string(std::get<1>(param.param));
                         });

// Blocks are walked from the last: logits that fall along the sequence rise along the walk.
TEST_P(PrefillTest, LogitsDrift) {
  ExpectRight("fall", [](std::int64_t key) { return 40 - 0.125 * static_cast<double>(key); });
  ExpectRight("rise", [](std::int64_t key) { return -40 + 0.125 * static_cast<double>(key); });
  // Slow enough for a reference above the maximum to last for more than a block.
  ExpectRight("fall_further", [](std::int64_t key) { return 200 - 0.5 * static_cast<double>(key); });
  // Of so many keys that a tile ends up taking maxima at once.
  ExpectRight(
      "fall_far", [](std::int64_t key) { return 600 - static_cast<double>(key); }, /*num_keys=*/1300);
}

// A warp has 16 rows: of a warpgroup some do blocks again and others do not, and those that do not all do the same ones.
TEST_P(PrefillTest, WarpsDiffer) {
  const auto logit = [](std::int64_t key) { return 400 - static_cast<double>(key); };
  ExpectRight("warps_differ", logit, kKeys, [](std::int64_t query) { return query / 16 % 3 == 0 ? 0.0625 : 1; });
  ExpectRight("rows_differ", logit, kKeys, [](std::int64_t query) { return static_cast<double>(query % 32) / 32; });
}

// Each side of where a first block's sum, or a later one's, is too large or too small for the reference at hand.
constexpr double kEndsOfTheRange[] = {-100, -25, -20, -9, -5, -4, 2, 3, 6, 7, 15, 16, 20, 25, 100};

// Logits of a kind differ a little: were they equal, the error would be that of one weight's rounding, and the bound that of
// another's.
double Near(double logit, std::int64_t key) { return logit + 0.25 * std::sin(static_cast<double>(key)); }

TEST_P(PrefillTest, SumsOfAllBlocksAtTheEndsOfTheRange) {
  for (const double logit : kEndsOfTheRange) {
    ExpectRight("all_" + std::to_string(static_cast<int>(logit)), [=](std::int64_t key) { return Near(logit, key); });
  }
}

TEST_P(PrefillTest, SumsOfFirstKeysAtTheEndsOfTheRange) {
  for (const double logit : kEndsOfTheRange) {
    ExpectRight("first_" + std::to_string(static_cast<int>(logit)),
                [=](std::int64_t key) { return Near(key < 400 ? logit : 0.0, key); });
  }
}

TEST_P(PrefillTest, SumsOfLastKeysAtTheEndsOfTheRange) {
  for (const double logit : kEndsOfTheRange) {
    ExpectRight("last_" + std::to_string(static_cast<int>(logit)),
                [=](std::int64_t key) { return Near(key < 400 ? 0.0 : logit, key); });
  }
}

TEST_P(PrefillTest, OneKeyOutweighsAll) {
  for (const std::int64_t spike : {0, 127, 300, 639, 699}) {
    for (const double height : {12.0, 30.0, 90.0}) {
      ExpectRight("spike_" + std::to_string(spike), [=](std::int64_t key) { return key == spike ? height : 0.0; });
    }
  }
}

// Weights above 1 times the largest values leave float32's range, though the mean does not.
TEST_P(PrefillTest, LargestValues) {
  AttentionOptions options;
  options.scale = 1;
  AttentionCase attention_case(DenseProblem(1, kQueries, kKeys, 1, 1, head_dim(), head_dim()), options, type(), /*seed=*/3);
  const double largest = type() == DataType::kFloat16 ? 65504 : 0x1p127;
  for (std::int64_t i = 0; i < attention_case.query().elements(); ++i) {
    attention_case.query().Set(i, i % head_dim() == 0 ? 1 : 0);
  }
  for (std::int64_t j = 0; j < kKeys; ++j) attention_case.key().Set(j * head_dim(), 5);
  for (std::int64_t i = 0; i < attention_case.value().elements(); ++i) attention_case.value().Set(i, largest);
  ASSERT_TRUE(Run(attention_case));
  for (std::int64_t i = 0; i < attention_case.output().elements(); ++i) {
    ASSERT_NEAR(attention_case.output().Get(i) / largest, 1, 0x1p-7) << i;
  }
}

// Soft caps that keep all products small, some of them and none; that leave products as they are, and nothing of them.
TEST_P(PrefillTest, SoftCaps) {
  for (const double cap : {30.0, 1.5, 0.25, 1e6, 1e37, 1e-20}) {
    AttentionOptions options;
    options.logit_soft_cap = cap;
    ExpectRight("cap_" + std::to_string(cap), options);
  }
}

TEST_P(PrefillTest, Alibi) {
  AttentionOptions options;
  options.alibi = true;
  ExpectRight("alibi", options);
}

TEST_P(PrefillTest, Bias) {
  AttentionOptions options;
  for (const support::Bias bias : {support::Bias::kFull, support::Bias::kSharedByAll}) {
    options.bias = bias;
    ExpectRight("bias_" + std::to_string(static_cast<int>(bias)), options);
  }
}

TEST_P(PrefillTest, SeveralLogitOptions) {
  AttentionOptions options;
  options.logit_soft_cap = 2;
  options.alibi = true;
  ExpectRight("cap_alibi", options);
  options.bias = support::Bias::kFull;
  ExpectRight("cap_alibi_bias", options);
  options.alibi = false;
  ExpectRight("cap_bias", options);
}

TEST_P(PrefillTest, NegativeScale) {
  AttentionOptions options;
  options.scale = -0.1;
  ExpectRight("negative_scale", options);
}

}  // namespace
}  // namespace ridgeline::kernels::attention
