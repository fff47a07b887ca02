// Attend end to end, from request to answer, against the double reference.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/engine.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine {
namespace {

using kernels::attention::Algorithm;
using support::AttentionCase;

std::span<const std::byte> BytesOf(const std::optional<OutputTensor>& tensor) {
  if (!tensor.has_value() || tensor->data == nullptr) return {};
  return {static_cast<const std::byte*>(tensor->data->data()), static_cast<std::size_t>(tensor->data->size_bytes())};
}

class AttendAnswerTest : public ::testing::TestWithParam<Algorithm> {
 protected:
  void Check(const support::AttentionProblem& problem, const support::AttentionOptions& options, kernels::DataType type,
             std::uint64_t seed) {
    AttentionCase attention_case(problem, options, type, seed);
    attention_case.params();
    AttendRequest request = RequestOf(attention_case);
    request.options.algorithm = GetParam();
    Answer answer;
    engine_->Attend(std::move(request), {}, answer.Callback());
    ASSERT_OK(answer.Wait()) << attention_case.name();
    const std::span<const std::byte> lse = BytesOf(answer.Wait()->log_sum_exp);
    EXPECT_TRUE(attention_case.AnswerIsRight(BytesOf(answer.Wait()->output),
                                             {reinterpret_cast<const float*>(lse.data()), lse.size() / sizeof(float)}));
    EXPECT_TRUE(attention_case.RunWasClean());
  }

  base::MetricsRegistry metrics_;
  std::unique_ptr<device::Device> device_ = MakeDevice(/*num_lanes=*/2);
  std::unique_ptr<Engine> engine_ = CreateEngine({}, *device_, MadeUpRoofline(), metrics_, base::Clock::Real());
};

TEST_P(AttendAnswerTest, EveryOptionOnSmallShapes) {
  std::uint64_t index = 0;
  for (const support::AttentionProblem& problem : support::SmallAttentionProblems()) {
    for (const support::OptionVariant& variant : support::OptionVariants()) {
      const support::AttentionOptions options = With(variant);
      if (!Allowed(problem, options)) continue;
      const kernels::DataType type = support::kAttentionTypes[index % 3];
      Check(problem, options, type, support::DeriveSeed("EveryOptionOnSmallShapes", index++));
    }
  }
  EXPECT_GT(index, 50u);
}

TEST_P(AttendAnswerTest, SameRandomElementsForBothInputsOfOneSeed) {
  for (const bool causal : {false, true}) {
    std::vector<std::vector<std::byte>> outputs;
    for (int i = 0; i < 2; ++i) {
      AttendRequest request = RandomRequest(100, 2, GetParam());
      request.options.causal = causal;
      Answer answer;
      engine_->Attend(std::move(request), {}, answer.Callback());
      ASSERT_OK(answer.Wait());
      const auto bytes = BytesOf(answer.Wait()->output);
      outputs.emplace_back(bytes.begin(), bytes.end());
    }
    EXPECT_EQ(outputs[0], outputs[1]);
  }
}

INSTANTIATE_TEST_SUITE_P(, AttendAnswerTest, ::testing::Values(Algorithm::kStandard, Algorithm::kFlash),
                         [](const auto& instance) { return Name(instance.param); });

}  // namespace
}  // namespace ridgeline::engine
