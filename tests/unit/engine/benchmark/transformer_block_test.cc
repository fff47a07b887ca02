// A transformer's block: its operations are right and found right, and what has not run is found wrong.
#include "server/engine/benchmark/transformer_block.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine::benchmark {
namespace {

using kernels::DataType;
using kernels::fused::Mode;
using support::IsOk;
using support::StatusIs;

constexpr BlockGeometry kLlama{"llama", 32, 4, 2, 8, 48, true};
constexpr BlockGeometry kGpt{"gpt", 32, 4, 4, 8, 48, false};
constexpr std::int64_t kTokens = 5;

std::vector<BlockOperation> AllOf(const BlockGeometry& geometry) {
  std::vector<BlockOperation> operations;
  for (std::size_t i = 0; i < kBlockOperationNames.size(); ++i) {
    const auto operation = static_cast<BlockOperation>(i);
    if (HasOperation(geometry, operation)) operations.push_back(operation);
  }
  return operations;
}

class TransformerBlockTest : public ::testing::TestWithParam<BlockGeometry> {
 protected:
  std::shared_ptr<TransformerBlock> Make(Mode mode, const std::vector<BlockOperation>& operations) {
    device_->EmptyMemoryCache();  // no memory in which right results may lie
    const AxisValues values;
    auto block = TransformerBlock::Create({*device_, lane(), values, /*seed=*/7}, GetParam(), kTokens, DataType::kFloat32, mode,
                                          operations);
    EXPECT_THAT(block, IsOk());
    EXPECT_THAT(measure::AwaitLane(lane()), IsOk());
    return *std::move(block);
  }
  device::Lane& lane() { return device_->lane(0); }

  const std::unique_ptr<device::Device> device_ = MakeDevice(/*num_lanes=*/1);
};

INSTANTIATE_TEST_SUITE_P(Geometries, TransformerBlockTest, ::testing::Values(kLlama, kGpt),
                         [](const auto& geometry) { return geometry.param.model; });

TEST_P(TransformerBlockTest, EachOperationIsRightAloneAndNoneBeforeItRuns) {
  for (const Mode mode : {Mode::kFused, Mode::kUnfused}) {
    for (const BlockOperation operation : AllOf(GetParam())) {
      SCOPED_TRACE(testing::Message() << kBlockOperationNames[static_cast<std::size_t>(operation)] << " " << Name(mode));
      const std::shared_ptr<TransformerBlock> block = Make(mode, {operation});
      EXPECT_THAT(block->Check(lane()), StatusIs(absl::StatusCode::kInternal));
      ASSERT_THAT(block->Queue(lane()), IsOk());
      EXPECT_THAT(block->Check(lane()), IsOk());
    }
  }
}

TEST_P(TransformerBlockTest, AWholeBlockCostsWhatItsOperationsCost) {
  for (const Mode mode : {Mode::kFused, Mode::kUnfused}) {
    const std::shared_ptr<TransformerBlock> block = Make(mode, AllOf(GetParam()));
    ASSERT_THAT(block->Queue(lane()), IsOk());
    EXPECT_THAT(block->Check(lane()), IsOk());
    BlockCost sum;
    for (const BlockOperation operation : AllOf(GetParam())) {
      const BlockCost cost = Make(mode, {operation})->cost();
      EXPECT_GT(cost.flops, 0);
      sum.flops += cost.flops;
      sum.bytes += cost.bytes;
    }
    EXPECT_EQ(block->cost().flops, sum.flops);
    EXPECT_EQ(block->cost().bytes, sum.bytes);
  }
}

TEST_P(TransformerBlockTest, ProductsAreCountedByHand) {
  const BlockCost up = Make(Mode::kFused, {BlockOperation::kFfnUp})->cost();
  const std::int64_t products = GetParam().is_llama ? 2 : 1;
  EXPECT_EQ(up.flops, products * 2 * kTokens * 32 * 48);
  EXPECT_EQ(up.bytes, products * 4 * (kTokens * 32 + 32 * 48 + kTokens * 48));
  const std::int64_t kv_width = GetParam().kv_heads * 8;
  EXPECT_EQ(Make(Mode::kFused, {BlockOperation::kQueryKeyValue})->cost().flops, 2 * kTokens * 32 * (32 + 2 * kv_width));
}

TEST_P(TransformerBlockTest, MemoryComesBack) {
  Make(Mode::kUnfused, AllOf(GetParam())).reset();
  EXPECT_EQ(device_->memory_stats().allocation_count, 0);
}

}  // namespace
}  // namespace ridgeline::engine::benchmark
