// The same launch a hundred times gives the same bytes: nothing depends on which block or warp comes first.
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/common/data_type.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

using support::AttentionCase;
using support::AttentionOptions;
using support::AttentionProblem;
using support::DenseProblem;

constexpr int kRepeats = 100;

class AttentionRepeatTest : public ::testing::TestWithParam<std::tuple<Algorithm, DataType>> {
 protected:
  void ExpectEqualBytes(const AttentionProblem& problem, const AttentionOptions& options) {
    AttentionCase attention_case(problem, options, std::get<1>(GetParam()), support::DeriveSeed("repeat"));
    std::vector<std::byte> first;
    for (int i = 0; i < kRepeats; ++i) {
      ASSERT_TRUE(RunKernel(std::get<0>(GetParam()), attention_case.params()));
      std::vector<std::byte> bytes(attention_case.output().bytes().begin(), attention_case.output().bytes().end());
      bytes.insert(bytes.end(), attention_case.log_sum_exp().bytes().begin(), attention_case.log_sum_exp().bytes().end());
      if (i == 0) first = bytes;
      ASSERT_TRUE(bytes == first) << "run " << i << ": " << attention_case.name();
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, AttentionRepeatTest,
                         ::testing::Combine(::testing::ValuesIn(kAlgorithms), ::testing::ValuesIn(support::kAttentionTypes)),
                         [](const auto& param) {
                           return std::string(Name(std::get<0>(param.param))) + "_" + Name(std::get<1>(param.param));
                         });

TEST_P(AttentionRepeatTest, ManyQueries) {
  AttentionOptions options;
  options.causal = true;
  for (const AttentionProblem& problem : {DenseProblem(1, 600, 600, 8, 2, 128, 128), DenseProblem(2, 300, 411, 4, 4, 64, 64),
                                          DenseProblem(1, 200, 200, 2, 1, 256, 256)}) {
    ExpectEqualBytes(problem, options);
  }
}

// Here the keys are split and the parts merged.
TEST_P(AttentionRepeatTest, FewQueriesOfManyKeys) {
  for (const AttentionProblem& problem : {DenseProblem(1, 1, 8192, 32, 8, 128, 128), DenseProblem(2, 3, 5000, 4, 1, 64, 64),
                                          support::RaggedProblem({1, 1, 2, 0, 1}, {4000, 17, 1500, 3, 0}, 8, 2, 96)}) {
    ExpectEqualBytes(problem, AttentionOptions());
  }
}

TEST_P(AttentionRepeatTest, EveryOption) {
  AttentionOptions options;
  options.window_left = 150;
  options.window_right = 20;
  options.logit_soft_cap = 1.5;
  options.alibi = true;
  options.sink = support::Sink::kFinite;
  options.bias = support::Bias::kSomeMinusInfinity;
  ExpectEqualBytes(DenseProblem(2, 130, 259, 6, 2, 80, 80), options);
}

}  // namespace
}  // namespace ridgeline::kernels::attention
