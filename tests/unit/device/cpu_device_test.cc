// The CPU device: what lane_test.cc does not ask of every device.
#include "server/device/cpu_device.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/common/simd_target.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/attend_rows.h"
#include "tests/unit/device/lane_io.h"

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using kernels::DataType;
using kernels::attention::Algorithm;
using kernels::attention::AttentionParams;
using kernels::attention::AttentionPlan;
using kernels::attention::Sequence;

class CpuDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(device_, CreateCpuDevice({.num_lanes = 3, .num_threads = 2, .memory_limit_bytes = 512 * kMiB}));
  }

  std::unique_ptr<Device> device_;
};

TEST_F(CpuDeviceTest, SaysWhatItIs) {
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(device_->num_lanes(), 3);
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.type, DeviceType::kCpu);
  EXPECT_EQ(info.instruction_set, kernels::SimdTargetName());
  EXPECT_EQ(info.compute_units, 2);
  EXPECT_EQ(info.memory_limit_bytes, 512 * kMiB);
  EXPECT_GT(info.memory_bytes, 0);
  EXPECT_EQ(device_->memory_stats().limit_bytes, 512 * kMiB);
  EXPECT_OK(device_->health());
}

TEST(CreateCpuDevice, DefaultsFollowTheMachine) {
  ASSERT_OK_AND_ASSIGN(const auto device, CreateCpuDevice({}));
  EXPECT_EQ(device->num_lanes(), 4);
  EXPECT_GE(device->info().compute_units, 1);
  EXPECT_NEAR(static_cast<double>(device->info().memory_limit_bytes), 0.8 * static_cast<double>(device->info().memory_bytes),
              10);
}

TEST(CreateCpuDevice, ImpossibleOptionsAreNamed) {
  EXPECT_THAT(CreateCpuDevice({.num_lanes = 0}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_lanes is 0")));
  EXPECT_THAT(CreateCpuDevice({.num_lanes = 1 << 30}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_lanes")));
  EXPECT_THAT(CreateCpuDevice({.num_threads = -1}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_threads")));
  EXPECT_THAT(CreateCpuDevice({.memory_limit_bytes = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("memory_limit_bytes is -1")));
}

// Right but for one product in the corner of large ones, as old OpenBLAS is on processors that it doesn't know.
void WrongSgemm(bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a, std::int64_t lda,
                const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
  kernels::OpenBlasSgemm(transpose_b, m, n, k, alpha, a, lda, b, ldb, c, ldc);
  if (m > 16 && n > 16) c[(m - 1) * ldc + (n - 1)] += 1;
}

TEST(CreateCpuDevice, WrongProductsAreRefused) {
  EXPECT_THAT(CreateCpuDevice({.sgemm = WrongSgemm}),
              StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr("OpenBLAS"), HasSubstr(kernels::OpenBlasCore()),
                                                                    HasSubstr("OPENBLAS_CORETYPE=Haswell"))));
}

// The first lane's completion waits for the second's: it comes only if both run at the same time.
TEST_F(CpuDeviceTest, LanesRunSideBySide) {
  std::promise<void> second_ran;
  std::promise<bool> first_saw_it;
  device_->lane(0).OnComplete([&](absl::Status) {
    first_saw_it.set_value(second_ran.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
  });
  device_->lane(1).OnComplete([&](absl::Status) { second_ran.set_value(); });
  EXPECT_TRUE(first_saw_it.get_future().get());
}

TEST_F(CpuDeviceTest, DownloadMovesNoByteAndKeepsTheMemory) {
  const std::vector<float> values = {1, 2, 3};
  Buffer buffer = Upload(device_->lane(0), values);
  const void* const data = buffer.data();
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<const HostBuffer> result, device_->lane(0).Download(std::move(buffer)));
  ASSERT_OK(Complete(device_->lane(0)));
  EXPECT_EQ(result->data(), data);
  EXPECT_EQ(ValuesOf<float>(*result), values);
  EXPECT_EQ(device_->memory_stats().allocation_count, 1);
  EXPECT_EQ(device_->EmptyMemoryCache(), 0);
  EXPECT_EQ(ValuesOf<float>(*result), values);
  result.reset();
  EXPECT_EQ(device_->memory_stats().allocation_count, 0);
  EXPECT_EQ(device_->EmptyMemoryCache(), 2 * kMiB);
}

TEST_F(CpuDeviceTest, EmptyMemoryCacheGivesBackWhatNothingUses) {
  {
    const Buffer cached = Allocate(device_->lane(0), 30 * kMiB);
    const Buffer cached_elsewhere = Allocate(device_->lane(1), 1000);
  }
  EXPECT_EQ(device_->EmptyMemoryCache(), 32 * kMiB);
  EXPECT_EQ(device_->memory_stats().reserved_bytes, 0);
  EXPECT_EQ(device_->memory_stats().peak_reserved_bytes, 32 * kMiB);
  device_->ResetPeakMemoryStats();
  EXPECT_EQ(device_->memory_stats().peak_reserved_bytes, 0);
}

TEST_F(CpuDeviceTest, TheWorkspaceOfAProductComesBack) {
  Lane& lane = device_->lane(0);
  const Buffer a = Upload<float>(lane, {1, 2}), b = Upload<float>(lane, {3, 4});
  Buffer c = Allocate(lane, sizeof(float));
  ASSERT_OK(lane.Gemm(DataType::kFloat32, 1, 1, 2, a, b, c));
  EXPECT_THAT(Download(lane, std::move(c)), ElementsAre(11));
  EXPECT_EQ(device_->memory_stats().allocation_count, 2);
}

TEST_F(CpuDeviceTest, CancelledWhileItRunsAttentionEndsSoon) {
  constexpr std::int64_t kTokens = 1 << 20, kHeadDim = 8;  // the best part of a minute at the rate of any two cores
  constexpr std::int64_t kBytes = kTokens * kHeadDim * sizeof(float);
  Lane& lane = device_->lane(0);
  const Sequence sequence = {.query_begin = 0, .query_tokens = kTokens, .key_begin = 0, .key_tokens = kTokens, .lse_begin = 0};
  const Buffer input = Allocate(lane, kBytes), output = Allocate(lane, kBytes);
  AttentionParams params = {};
  params.shape = OneHead(kHeadDim);
  params.scale = 1;
  params.sequences = &sequence;
  ASSERT_OK_AND_ASSIGN(const AttentionPlan plan, device_->PlanAttention(params.shape, {&sequence, 1}, Algorithm::kFlash));
  const Buffer workspace = Allocate(lane, plan.workspace_bytes);
  params.query = params.key = params.value = input.data();
  params.output = output.data();
  params.workspace = workspace.data();

  const auto cancel = std::make_shared<std::atomic<bool>>(false);
  std::promise<void> reached;
  lane.OnComplete([&reached](absl::Status) { reached.set_value(); });
  ASSERT_OK(lane.Attend(plan, params, {&sequence, 1}, cancel));
  std::promise<absl::Status> completed;
  lane.OnComplete([&completed](absl::Status status) { completed.set_value(std::move(status)); });
  std::future<absl::Status> status = completed.get_future();
  reached.get_future().wait();
  EXPECT_EQ(status.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout) << "too short to be cancelled";
  *cancel = true;
  ASSERT_EQ(status.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_OK(status.get());
}

}  // namespace
}  // namespace ridgeline::device
