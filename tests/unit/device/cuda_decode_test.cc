// Paged decode on a lane of the CUDA device: whose merge workspace it is, and that it is filled again after a launch that
// failed.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/common/data_type.h"
#include "server/base/status_macros.h"
#include "server/device/cuda_device.h"
#include "server/device/device.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/lane_io.h"

namespace ridgeline::device {
namespace {

using kernels::DataType;
using kernels::attention::AttentionParams;
using kernels::attention::AttentionPlan;
using kernels::attention::Sequence;
using ::ridgeline::support::StatusIs;
using ::testing::Each;

constexpr int kInvalidValue = 1;
constexpr std::uint16_t kHalf = 0x3f00;  // 0.5 in bfloat16
constexpr std::uint16_t kNan = 0xffff;

// Two sequences of one head over pages of 16; one is long enough to be cut over many blocks. All rows are 0.5, and so is what
// attention gives.
class CudaDecodeTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kHeadDim = 64, kPageTokens = 16, kPages = 300;

  void SetUp() override {
    auto device = CreateCudaDevice({.num_lanes = 2,
                                    .memory_limit_bytes = 256 * kMiB,
                                    .pinned_limit_bytes = 64 * kMiB,
                                    .inject_error = [this](const char* call) { return Ask(call); }});
    if (absl::IsFailedPrecondition(device.status())) GTEST_SKIP() << device.status().message();
    ASSERT_OK(device);
    device_ = *std::move(device);
    for (std::int32_t page = 0; page < kPages; ++page) table_.push_back(kPages - 1 - page);
  }

  // The next call of that name fails; null: none does.
  void FailNext(const char* call) { failing_ = call; }
  bool HasFailed() const { return failing_ == nullptr; }

  absl::Status Decode(int lane_idx, std::vector<std::uint16_t>& output) {
    Lane& lane = device_->lane(lane_idx);
    Held held;
    const absl::Status queued = Queue(lane, held);
    // After a failure too: what had been queued uses what is held.
    const absl::Status completed = Complete(lane);
    RIDGELINE_RETURN_IF_ERROR(queued);
    RIDGELINE_RETURN_IF_ERROR(completed);
    const auto* const elements = static_cast<const std::uint16_t*>(held.result->data());
    output.assign(elements, elements + held.result->size_bytes() / 2);
    return absl::OkStatus();
  }

  void ExpectRight(int lane_idx) {
    std::vector<std::uint16_t> output;
    ASSERT_OK(Decode(lane_idx, output));
    EXPECT_THAT(output, Each(kHalf));
  }

  std::unique_ptr<Device> device_;

 private:
  struct Held {
    Buffer sequences, table, query, pages, output;
    std::shared_ptr<const HostBuffer> result;
  };

  int Ask(const char* call) {
    const char* failing = failing_;
    const bool fails = failing != nullptr && std::strcmp(failing, call) == 0;
    return fails && failing_.compare_exchange_strong(failing, nullptr) ? kInvalidValue : 0;
  }

  absl::Status Queue(Lane& lane, Held& held) {
    AttentionParams params = {};
    params.shape = {.data_type = DataType::kBFloat16,
                    .output_data_type = DataType::kBFloat16,
                    .num_sequences = 2,
                    .query_heads = 1,
                    .kv_heads = 1,
                    .head_dim = kHeadDim,
                    .value_head_dim = kHeadDim,
                    .page_tokens = kPageTokens};
    params.scale = 1;
    RIDGELINE_ASSIGN_OR_RETURN(const AttentionPlan plan, device_->PlanAttention(params.shape, sequences_, std::nullopt));
    EXPECT_GT(plan.decode.num_blocks, 0) << plan.kernel;
    RIDGELINE_ASSIGN_OR_RETURN(held.sequences, lane.Upload({SliceOf(sequences_)}, nullptr));
    RIDGELINE_ASSIGN_OR_RETURN(held.table, lane.Upload({SliceOf(table_)}, nullptr));
    RIDGELINE_ASSIGN_OR_RETURN(held.query, lane.Upload({SliceOf(rows_)}, nullptr));
    RIDGELINE_ASSIGN_OR_RETURN(held.pages, lane.Upload({SliceOf(pages_)}, nullptr));
    RIDGELINE_ASSIGN_OR_RETURN(held.output, lane.Upload({SliceOf(untouched_)}, nullptr));
    params.sequences = static_cast<const Sequence*>(held.sequences.data());
    params.block_table = static_cast<const std::int32_t*>(held.table.data());
    params.query = held.query.data();
    params.key = params.value = held.pages.data();
    params.output = held.output.data();
    RIDGELINE_RETURN_IF_ERROR(lane.Attend(plan, params, sequences_, nullptr).status());
    RIDGELINE_ASSIGN_OR_RETURN(held.result, lane.Download(std::move(held.output)));
    return absl::OkStatus();
  }

  std::atomic<const char*> failing_{nullptr};
  const std::vector<Sequence> sequences_ = {
      {.query_begin = 0, .query_tokens = 1, .key_begin = 0, .key_tokens = 4001, .lse_begin = 0},
      {.query_begin = 1, .query_tokens = 1, .key_begin = 260, .key_tokens = 7, .lse_begin = 1}};
  std::vector<std::int32_t> table_;
  const std::vector<std::uint16_t> rows_ = std::vector<std::uint16_t>(2 * kHeadDim, kHalf);
  const std::vector<std::uint16_t> pages_ = std::vector<std::uint16_t>(kPages * kPageTokens * kHeadDim, kHalf);
  const std::vector<std::uint16_t> untouched_ = std::vector<std::uint16_t>(2 * kHeadDim, kNan);
};

TEST_F(CudaDecodeTest, EveryLaneDecodesAgainAndAgain) {
  for (int i = 0; i < 10; ++i) {
    for (const int lane_idx : {0, 1}) ExpectRight(lane_idx);
  }
}

TEST_F(CudaDecodeTest, TheWorkspaceIsFilledOnceAndAfterEachLaunchThatFailed) {
  std::vector<std::uint16_t> output;
  FailNext("cudaMemsetAsync");
  EXPECT_THAT(Decode(0, output), StatusIs(absl::StatusCode::kInternal)) << "nobody fills the workspace";
  ExpectRight(0);
  FailNext("cudaMemsetAsync");
  ExpectRight(0);
  EXPECT_FALSE(HasFailed()) << "the workspace is filled although it is clean";
  FailNext("kernels::attention::LaunchDecode");
  EXPECT_THAT(Decode(0, output), StatusIs(absl::StatusCode::kInternal));
  FailNext("cudaMemsetAsync");
  EXPECT_THAT(Decode(0, output), StatusIs(absl::StatusCode::kInternal)) << "nobody fills the workspace again";
  ExpectRight(0);
}

}  // namespace
}  // namespace ridgeline::device
