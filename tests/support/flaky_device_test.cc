#include "tests/support/flaky_device.h"

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/kv_cache/kv_cache.h"
#include "server/base/status_macros.h"
#include "server/device/cpu_device.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::support {
namespace {

using ::testing::HasSubstr;

using device::Buffer;
using device::Lane;
using kernels::DataType;
using kernels::attention::AttentionPlan;
using kernels::attention::AttentionShape;
using kernels::attention::Sequence;
using kernels::kv_cache::PagedRows;

class FlakyDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(auto device,
                         device::CreateCpuDevice({.num_lanes = 2, .num_threads = 1, .memory_limit_bytes = 1 << 28}));
    device_ = std::make_unique<FlakyDevice>(std::move(device));
  }

  std::future<absl::Status> Complete(int lane) {
    auto status = std::make_shared<std::promise<absl::Status>>();
    device_->lane(lane).OnComplete([status](absl::Status s) { status->set_value(std::move(s)); });
    return status->get_future();
  }

  // Every fallible call once, on lane 0, as a caller would who gives up at the first error.
  absl::Status CallEverything() {
    Lane& lane = device_->lane(0);
    const Sequence sequence = {.query_begin = 0, .query_tokens = 1, .key_begin = 0, .key_tokens = 1, .lse_begin = 0};
    const AttentionShape shape = {.data_type = DataType::kFloat32,
                                  .output_data_type = DataType::kFloat32,
                                  .num_sequences = 1,
                                  .query_heads = 1,
                                  .kv_heads = 1,
                                  .head_dim = 8,
                                  .value_head_dim = 8};
    const PagedRows no_rows = {.pages = {.data_type = DataType::kFloat32,
                                         .kv_heads = 1,
                                         .head_dim = 8,
                                         .value_head_dim = 8,
                                         .page_tokens = 1,
                                         .key = nullptr,
                                         .value = nullptr},
                               .block_table = nullptr,
                               .spans = nullptr,
                               .num_spans = 0,
                               .num_rows = 0};
    const absl::StatusOr<Buffer> arena = device_->Allocate(512);  // let go when the lane has completed
    const absl::Status queued = [&]() -> absl::Status {
      RIDGELINE_RETURN_IF_ERROR(arena.status());
      RIDGELINE_ASSIGN_OR_RETURN(const AttentionPlan plan, device_->PlanAttention(shape, {&sequence, 1}, std::nullopt));
      RIDGELINE_ASSIGN_OR_RETURN(Buffer output, lane.Allocate(8 * sizeof(float)));
      RIDGELINE_ASSIGN_OR_RETURN(const Buffer upload, lane.Upload({{input_.data(), 8 * sizeof(float)}}, nullptr));
      RIDGELINE_ASSIGN_OR_RETURN(Buffer random, lane.UploadRandom(DataType::kFloat32, 8, 1, 0, 1));
      RIDGELINE_RETURN_IF_ERROR(lane.Copy(random, upload, 8 * sizeof(float)));
      RIDGELINE_ASSIGN_OR_RETURN(const auto event, lane.Record());
      RIDGELINE_ASSIGN_OR_RETURN(const Buffer workspace, lane.Allocate(plan.workspace_bytes));
      RIDGELINE_RETURN_IF_ERROR(lane.Attend(plan,
                                            {.shape = shape,
                                             .scale = 1,
                                             .sequences = &sequence,
                                             .query = upload.data(),
                                             .key = upload.data(),
                                             .value = upload.data(),
                                             .output = output.data(),
                                             .workspace = workspace.data()},
                                            {&sequence, 1}, nullptr)
                                    .status());
      RIDGELINE_RETURN_IF_ERROR(lane.Gemm(DataType::kFloat32, 1, 1, 8, upload, random, output));
      RIDGELINE_RETURN_IF_ERROR(lane.AppendKeyValue({.to = no_rows, .key = nullptr, .value = nullptr}));
      RIDGELINE_RETURN_IF_ERROR(lane.GatherKeyValue({.from = no_rows, .key = nullptr, .value = nullptr}));
      RIDGELINE_RETURN_IF_ERROR(lane.CopyPages({}));
      return lane.Download(std::move(output)).status();
    }();
    absl::Status completed = Complete(0).get();
    return queued.ok() ? completed : queued;
  }

  const std::vector<float> input_ = std::vector<float>(8, 1);
  std::unique_ptr<FlakyDevice> device_;
};

TEST_F(FlakyDeviceTest, WithoutFaultsItIsTheWrappedDevice) {
  EXPECT_OK(CallEverything());
  EXPECT_GE(device_->num_calls(), 13);
  EXPECT_OK(device_->health());
  EXPECT_EQ(device_->info().compute_units, 1);
  EXPECT_EQ(device_->num_lanes(), 2);
  EXPECT_EQ(device_->memory_stats().allocation_count, 0);
}

TEST_F(FlakyDeviceTest, EveryCallCanFailOnce) {
  EXPECT_OK(CallEverything());
  const std::int64_t num_calls = device_->num_calls();
  for (std::int64_t n = 0; n < num_calls; ++n) {
    device_->FailCall(n, absl::DataLossError("injected"));
    EXPECT_THAT(CallEverything(), StatusIs(absl::StatusCode::kDataLoss, "injected")) << "call " << n;
    EXPECT_EQ(device_->memory_stats().allocation_count, 0);
    EXPECT_OK(CallEverything());
  }
  device_->FailCall(num_calls, absl::DataLossError("injected"));
  EXPECT_OK(CallEverything());
}

TEST_F(FlakyDeviceTest, LostForGood) {
  absl::Status told;
  device_->OnLost([&told](const absl::Status& cause) { told = cause; });
  device_->HoldCompletions(0);
  std::future<absl::Status> in_flight = Complete(0);
  device_->Lose(absl::UnavailableError("fell off the bus"));
  device_->ReleaseCompletions(0);
  const auto is_loss = StatusIs(absl::StatusCode::kUnavailable, HasSubstr("fell off the bus"));
  EXPECT_THAT(in_flight.get(), is_loss);
  EXPECT_THAT(told, is_loss);
  EXPECT_THAT(device_->health(), is_loss);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(CallEverything(), is_loss);
  EXPECT_THAT(Complete(1).get(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(FlakyDeviceTest, HeldCompletionsWaitOnTheirLaneAlone) {
  device_->HoldCompletions(0);
  std::future<absl::Status> held = Complete(0);
  std::future<absl::Status> behind = Complete(0);
  device_->AwaitHeldCompletion(0);
  EXPECT_OK(Complete(1).get());
  EXPECT_EQ(held.wait_for(std::chrono::milliseconds(10)), std::future_status::timeout);
  device_->ReleaseCompletions(0);
  EXPECT_OK(held.get());
  EXPECT_OK(behind.get());
}

TEST_F(FlakyDeviceTest, DestructorReleasesWhatIsHeld) {
  device_->HoldCompletions(1);
  std::future<absl::Status> held = Complete(1);
  device_.reset();
  EXPECT_OK(held.get());
}

}  // namespace
}  // namespace ridgeline::support
