// Gradients: the reference against finite differences, and every policy against the reference.
#include "server/engine/benchmark/mlp_stack.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/benchmark/mlp_reference.h"
#include "server/engine/benchmark/pieces.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine::benchmark {
namespace {

using support::IsOk;

constexpr MlpStackShape kShape{.tokens = 4, .width = 8, .hidden = 12, .blocks = 5};
constexpr KeepPolicy kPolicies[] = {{.keep = Keep::kAll},
                                    {.keep = Keep::kSelective},
                                    {.keep = Keep::kEvery, .every = 1},
                                    {.keep = Keep::kEvery, .every = 2},
                                    {.keep = Keep::kEvery, .every = 7},
                                    {.keep = Keep::kNone},
                                    {.keep = Keep::kHost}};

MlpValues RandomValues(const MlpStackShape& shape) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(0, 0.5);
  const auto draw = [&](std::int64_t count) {
    std::vector<double> values(count);
    std::generate(values.begin(), values.end(), [&] { return normal(random); });
    return values;
  };
  MlpValues values{draw(shape.tokens * shape.width), draw(shape.tokens * shape.width), {}};
  for (std::int64_t block = 0; block < shape.blocks; ++block) {
    values.blocks.push_back(
        {draw(shape.width), draw(shape.width), draw(shape.hidden * shape.width), draw(shape.width * shape.hidden)});
  }
  return values;
}

// Each element moved a little either way.
void ExpectFiniteDifferences(MlpValues& values, std::vector<double>& parameter, const std::vector<double>& gradient) {
  constexpr double kStep = 1e-5;
  ASSERT_EQ(parameter.size(), gradient.size());
  for (std::size_t i = 0; i < parameter.size(); ++i) {
    const double before = parameter[i];
    parameter[i] = before + kStep;
    const double above = MlpLoss(kShape, values);
    parameter[i] = before - kStep;
    const double below = MlpLoss(kShape, values);
    parameter[i] = before;
    EXPECT_NEAR((above - below) / (2 * kStep), gradient[i], 1e-6 * (1 + std::abs(gradient[i]))) << i;
  }
}

TEST(MlpReferenceTest, GradientsAreFiniteDifferences) {
  MlpValues values = RandomValues(kShape);
  const MlpGradients gradients = MlpLossGradients(kShape, values);
  ExpectFiniteDifferences(values, values.input, gradients.input);
  for (const std::size_t block : {std::size_t{0}, std::size_t{4}}) {
    SCOPED_TRACE(block);
    MlpBlockValues& parameters = values.blocks[block];
    ExpectFiniteDifferences(values, parameters.norm_weight, gradients.blocks[block].norm_weight);
    ExpectFiniteDifferences(values, parameters.norm_bias, gradients.blocks[block].norm_bias);
    ExpectFiniteDifferences(values, parameters.up, gradients.blocks[block].up);
    ExpectFiniteDifferences(values, parameters.down, gradients.blocks[block].down);
  }
}

class MlpStackTest : public ::testing::Test {
 protected:
  void Make(const MlpStackShape& shape) {
    auto stack = MlpStack::Create(*device_, lane(), shape, /*seed=*/5, /*uses_host=*/true);
    ASSERT_THAT(stack, IsOk());
    stack_ = *std::move(stack);
    ASSERT_THAT(measure::AwaitLane(lane()), IsOk());
  }
  device::Lane& lane() { return device_->lane(0); }

  // Runs a pass; what it allocated at most.
  std::int64_t Run(const KeepPolicy& policy) {
    device_->ResetPeakMemoryStats();
    const std::int64_t before = device_->memory_stats().allocated_bytes;
    EXPECT_THAT(stack_->Queue(lane(), policy), IsOk());
    EXPECT_THAT(measure::AwaitLane(lane()), IsOk());
    EXPECT_EQ(device_->memory_stats().allocated_bytes, before) << "activations are left";
    return device_->memory_stats().peak_allocated_bytes - before;
  }

  std::vector<float> Read(const device::Buffer& buffer) { return *ReadFloats(lane(), buffer, buffer.size_bytes() / 4); }

  // All of them, one after the other.
  std::vector<float> Gradients() {
    std::vector<float> all = Read(stack_->input_gradient());
    for (const MlpBlock& block : stack_->gradients()) {
      for (const device::Buffer* buffer : {&block.norm_weight, &block.norm_bias, &block.up, &block.down}) {
        const std::vector<float> values = Read(*buffer);
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    return all;
  }

  std::vector<double> WantedGradients() {
    const auto widened = [&](const device::Buffer& buffer) {
      const std::vector<float> values = Read(buffer);
      return std::vector<double>(values.begin(), values.end());
    };
    MlpValues values{widened(stack_->input()), widened(stack_->output_gradient()), {}};
    for (const MlpBlock& block : stack_->parameters()) {
      values.blocks.push_back({widened(block.norm_weight), widened(block.norm_bias), widened(block.up), widened(block.down)});
    }
    const MlpGradients gradients = MlpLossGradients(stack_->shape(), values);
    std::vector<double> all = gradients.input;
    for (const MlpBlockValues& block : gradients.blocks) {
      for (const std::vector<double>* each : {&block.norm_weight, &block.norm_bias, &block.up, &block.down}) {
        all.insert(all.end(), each->begin(), each->end());
      }
    }
    return all;
  }

  const std::unique_ptr<device::Device> device_ = MakeDevice(/*num_lanes=*/1);
  std::shared_ptr<MlpStack> stack_;
};

TEST_F(MlpStackTest, EveryPolicyGivesTheReferencesGradientsAndEqualBytes) {
  Make(kShape);
  const std::vector<double> want = WantedGradients();
  const double largest =
      std::abs(*std::max_element(want.begin(), want.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }));
  Run({.keep = Keep::kAll});
  const std::vector<float> kept = Gradients();
  ASSERT_EQ(kept.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(kept[i], want[i], 1e-4 * largest) << i;
  for (const KeepPolicy& policy : kPolicies) {
    Run(policy);
    EXPECT_EQ(Gradients(), kept) << static_cast<int>(policy.keep) << " " << policy.every;
  }
}

TEST_F(MlpStackTest, WhatIsNotKeptIsNotInMemory) {
  constexpr MlpStackShape kDeep{.tokens = 512, .width = 64, .hidden = 256, .blocks = 8};
  Make(kDeep);
  const std::int64_t all = Run({.keep = Keep::kAll});
  const std::int64_t activations = kDeep.blocks * 2 * kDeep.tokens * (kDeep.width + kDeep.hidden) * 4;
  EXPECT_GE(all, activations);
  EXPECT_LT(all, activations * 3 / 2);
  const std::int64_t selective = Run({.keep = Keep::kSelective});
  const std::int64_t every_1 = Run({.keep = Keep::kEvery, .every = 1});
  const std::int64_t every_4 = Run({.keep = Keep::kEvery, .every = 4});
  const std::int64_t none = Run({.keep = Keep::kNone});
  EXPECT_LT(selective, all * 3 / 4);
  EXPECT_LT(every_4, all * 3 / 4);
  EXPECT_LT(every_1, all / 2);
  EXPECT_LT(none, every_1);
}

TEST(MlpCostTest, RecomputingCostsAThirdMore) {
  constexpr MlpStackShape kDeep{.tokens = 16, .width = 8, .hidden = 32, .blocks = 6};
  const std::int64_t least = CountMlpFlops(kDeep, {.keep = Keep::kAll});
  EXPECT_EQ(least, 6 * 6 * 2 * 16 * 8 * 32);
  EXPECT_EQ(CountMlpFlops(kDeep, {.keep = Keep::kSelective}), least);
  EXPECT_EQ(CountMlpFlops(kDeep, {.keep = Keep::kHost}), least);
  for (const std::int64_t every : {1, 2, 6}) {
    EXPECT_EQ(3 * CountMlpFlops(kDeep, {.keep = Keep::kEvery, .every = every}), 4 * least) << every;
  }
  EXPECT_EQ(CountMlpFlops(kDeep, {.keep = Keep::kNone}), least + 21 * 2 * 2 * 16 * 8 * 32);
  EXPECT_GT(CountMlpBytes(kDeep, {.keep = Keep::kSelective}), CountMlpBytes(kDeep, {.keep = Keep::kAll}));
}

}  // namespace
}  // namespace ridgeline::engine::benchmark
