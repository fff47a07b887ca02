// Q, K and V of a trained model over a paragraph of English (tests/data/smollm2): attention sinks, sharp heads and large
// logits, which random normals don't have.
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
#include "tests/support/npy.h"
#include "tests/support/source_folder.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

using support::AttentionCase;
using support::AttentionOptions;
using support::NpyArray;

class AttentionRealInputTest : public ::testing::TestWithParam<std::tuple<int, DataType>> {
 protected:
  int layer() const { return std::get<0>(GetParam()); }
  DataType type() const { return std::get<1>(GetParam()); }

  void SetUp() override {
    for (const auto& [name, array] : {std::pair{"query", &query_},
                                      {"key", &key_},
                                      {"value", &value_},
                                      {"output", &output_},
                                      {"log_sum_exp", &log_sum_exp_}}) {
      const std::string file = "/tests/data/smollm2/layer_" + std::to_string(layer()) + "_" + name + ".npy";
      ASSERT_EQ(support::ReadNpy(support::SourceFolder().string() + file, *array), "");
    }
  }

  // The layer's attention in the given type: the model's tensors, rounded to it.
  AttentionCase MakeCase() {
    AttentionOptions options;
    options.causal = true;
    options.name = "layer_" + std::to_string(layer());
    return AttentionCase(support::DenseProblem(1, query_.shape[1], key_.shape[1], query_.shape[2], key_.shape[2],
                                               query_.shape[3], value_.shape[3]),
                         options, type(), /*seed=*/0);
  }

  static void Fill(const NpyArray& array, support::TestTensor& tensor) {
    ASSERT_EQ(static_cast<std::int64_t>(array.elements.size()), tensor.elements());
    for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.Set(i, array.elements[i]);
  }

  NpyArray query_, key_, value_, output_, log_sum_exp_;
};

INSTANTIATE_TEST_SUITE_P(All, AttentionRealInputTest,
                         ::testing::Combine(::testing::Values(0, 14, 29), ::testing::ValuesIn(support::kAttentionTypes)),
                         [](const auto& param) {
                           return "layer_" + std::to_string(std::get<0>(param.param)) + "_" + Name(std::get<1>(param.param));
                         });

TEST_P(AttentionRealInputTest, BothAlgorithmsAreRight) {
  AttentionCase attention_case = MakeCase();
  Fill(query_, attention_case.query());
  Fill(key_, attention_case.key());
  Fill(value_, attention_case.value());
  if (type() == DataType::kFloat32) {
    // The answers in the files were computed by other means: they vouch for the reference.
    const std::vector<double> output_bound(output_.elements.size(), 1e-12);
    EXPECT_TRUE(support::AllWithin(attention_case.expected().output, output_.elements, output_bound,
                                   {.name = "reference output", .shape = output_.shape}));
    const std::vector<double> lse_bound(log_sum_exp_.elements.size(), 1e-12);
    EXPECT_TRUE(support::AllWithin(attention_case.expected().log_sum_exp, log_sum_exp_.elements, lse_bound,
                                   {.name = "reference log_sum_exp", .shape = log_sum_exp_.shape}));
  }
  for (const Algorithm algorithm : kAlgorithms) {
    EXPECT_TRUE(IsRight(algorithm, attention_case)) << Name(algorithm);
  }
}

}  // namespace
}  // namespace ridgeline::kernels::attention
