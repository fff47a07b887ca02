// The CUDA device on a GPU: what lane_test.cc does not ask of every device. Each test skips, with the reason, where there is
// none.
#include "server/device/cuda_device.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/device/staging_ring.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/attend_rows.h"
#include "tests/unit/device/lane_io.h"

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

using kernels::DataType;
using kernels::attention::Algorithm;

// Fails a chosen CUDA call once, or all that take device memory. Thread-safe.
class Injection {
 public:
  // The n-th call from now on, counted from 0, fails. Queries of events are not counted: their number is chance.
  void FailCall(int n, int error) {
    error_ = error;
    calls_left_ = n;
  }
  // The next call of that name fails.
  void FailNext(const char* call, int error) {
    error_ = error;
    name_ = call;
  }
  // Until Disarm there is no device memory left to take.
  void FillGpu() { gpu_is_full_ = true; }
  void Disarm() {
    calls_left_ = -1;
    name_ = nullptr;
    gpu_is_full_ = false;
  }
  // What failed since the last call of this; empty: nothing.
  std::string TakeFailed() {
    const char* const failed = failed_.exchange(nullptr);
    return failed == nullptr ? "" : failed;
  }

  int Ask(const char* call) {
    constexpr int kMemoryAllocation = 2;  // cudaErrorMemoryAllocation
    if (gpu_is_full_ && (std::strcmp(call, "cudaMalloc") == 0 || std::strcmp(call, "cuMemCreate") == 0)) {
      return kMemoryAllocation;
    }
    const char* name = name_;
    if (name != nullptr && std::strcmp(name, call) == 0 && name_.compare_exchange_strong(name, nullptr)) return Fail(call);
    if (std::strcmp(call, "cudaEventQuery") == 0 || calls_left_ < 0) return 0;
    return calls_left_-- == 0 ? Fail(call) : 0;
  }

 private:
  int Fail(const char* call) {
    failed_ = call;
    return error_;
  }

  std::atomic<bool> gpu_is_full_{false};
  std::atomic<int> error_{0};
  std::atomic<int> calls_left_{-1};
  std::atomic<const char*> name_{nullptr};
  std::atomic<const char*> failed_{nullptr};
};

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = CreateCudaDevice({.num_lanes = 3,
                                    .num_copy_threads = 2,
                                    .memory_limit_bytes = 2048 * kMiB,
                                    .pinned_limit_bytes = 256 * kMiB,
                                    .inject_error = [this](const char* call) { return injection_.Ask(call); }});
    if (absl::IsFailedPrecondition(device.status())) GTEST_SKIP() << device.status().message();
    ASSERT_OK(device);
    device_ = *std::move(device);
  }

  Lane& lane() { return device_->lane(0); }

  Injection injection_;
  std::unique_ptr<Device> device_;
};

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(device_->num_lanes(), 3);
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.type, DeviceType::kCuda);
  EXPECT_THAT(info.instruction_set, HasSubstr("sm_"));
  EXPECT_GT(info.compute_units, 0);
  EXPECT_GT(info.memory_bytes, info.memory_limit_bytes);
  EXPECT_GT(info.l2_cache_bytes, 0);
  EXPECT_EQ(info.memory_limit_bytes, 2048 * kMiB);
  EXPECT_EQ(device_->memory_stats().limit_bytes, 2048 * kMiB);
  EXPECT_EQ(device_->memory_stats().reserved_bytes, 0);
  EXPECT_EQ(device_->pinned_memory_stats()->limit_bytes, 256 * kMiB);
  EXPECT_OK(device_->health());
}

TEST_F(CudaDeviceTest, MonitoringAgreesWithTheDevice) {
  const std::optional<GpuStatus> status = device_->gpu_status();
  if (!status.has_value()) GTEST_SKIP() << "no NVML";
  EXPECT_THAT(status->uuid, ::testing::StartsWith("GPU-"));
  EXPECT_FALSE(status->driver_version.empty());
  EXPECT_GT(status->sm_clock_mhz.value_or(1), 0);
  EXPECT_GT(status->power_watts.value_or(1), 0);
  EXPECT_GT(status->temperature_celsius.value_or(1), 0);
}

TEST(CreateCudaDevice, ImpossibleOptionsAreNamed) {
  if (absl::IsUnimplemented(CreateCudaDevice({}).status())) GTEST_SKIP() << "a build without CUDA";
  EXPECT_THAT(CreateCudaDevice({.num_lanes = 0}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_lanes is 0")));
  EXPECT_THAT(CreateCudaDevice({.ordinal = -1}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ordinal")));
  EXPECT_THAT(CreateCudaDevice({.memory_limit_bytes = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("memory_limit_bytes is -1")));
}

TEST_F(CudaDeviceTest, AGpuThatIsNotThereIsNamed) {
  EXPECT_THAT(CreateCudaDevice({.ordinal = 1000}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no GPU 1000")));
}

TEST_F(CudaDeviceTest, UploadsLargerThanTheStagingRing) {
  const std::int64_t ring_floats = StagingRing::kNumSlots * StagingRing::kSlotBytes / sizeof(float);
  for (const std::int64_t count : {ring_floats - 1, ring_floats, ring_floats + 1, 3 * ring_floats + 12'345}) {
    const std::vector<float> values = Numbered(count);
    EXPECT_TRUE(Download(lane(), Upload(lane(), values)) == values) << count;
  }
}

// Some hundred milliseconds of work, queued in a fraction of that.
void QueueLongWork(Lane& lane, const Buffer& a, const Buffer& b, Buffer& c) {
  for (int i = 0; i < 500; ++i) ASSERT_OK(lane.Gemm(DataType::kFloat32, 2048, 2048, 2048, a, b, c));
}

TEST_F(CudaDeviceTest, LanesRunSideBySide) {
  Lane& lane = this->lane();
  ASSERT_OK_AND_ASSIGN(const Buffer a, lane.UploadRandom(DataType::kFloat32, 2048 * 2048, 1, 0, 1));
  Buffer c = Allocate(lane, a.size_bytes());
  QueueLongWork(lane, a, a, c);
  std::atomic<bool> first_done = false;
  std::promise<void> first;
  lane.OnComplete([&](absl::Status status) {
    EXPECT_OK(status);
    first_done = true;
    first.set_value();
  });
  EXPECT_THAT(Download(device_->lane(1), Upload<float>(device_->lane(1), {1, 2, 3})), ElementsAre(1, 2, 3));
  EXPECT_FALSE(first_done) << "the second lane waited for the first";
  first.get_future().wait();
}

TEST_F(CudaDeviceTest, MemoryInUseByTheStreamIsNotGivenBack) {
  Lane& lane = this->lane();
  ASSERT_OK_AND_ASSIGN(Buffer a, lane.UploadRandom(DataType::kFloat32, 2048 * 2048, 1, 0, 1));
  Buffer c = Allocate(lane, a.size_bytes());
  QueueLongWork(lane, a, a, c);
  std::promise<absl::Status> completed;
  std::atomic<bool> done = false;
  lane.OnComplete([&](absl::Status status) {
    done = true;
    completed.set_value(std::move(status));
  });
  a = Buffer();
  c = Buffer();
  const std::int64_t released_bytes = device_->EmptyMemoryCache();
  EXPECT_TRUE(done || released_bytes == 0) << "released " << released_bytes << " bytes that queued work uses";
  EXPECT_OK(completed.get_future().get());
  EXPECT_GT(device_->EmptyMemoryCache() + released_bytes, 0);
}

TEST_F(CudaDeviceTest, ResultsOutliveTheBatchAndCountAsPinnedMemory) {
  const std::vector<float> values = Numbered(1000);
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<const HostBuffer> result, lane().Download(Upload(lane(), values)));
  ASSERT_OK(Complete(lane()));
  EXPECT_EQ(device_->memory_stats().allocation_count, 0);
  EXPECT_EQ(device_->pinned_memory_stats()->allocation_count, 1);
  for (int i = 0; i < 10; ++i) Download(lane(), Upload(lane(), std::vector<float>(1000)));
  EXPECT_EQ(ValuesOf<float>(*result), values) << "written over while it was held";
  result.reset();
  EXPECT_EQ(device_->pinned_memory_stats()->allocation_count, 0);
}

TEST_F(CudaDeviceTest, ResultsHaveABudgetOfTheirOwn) {
  Buffer large = Allocate(lane(), 300 * kMiB);
  EXPECT_THAT(lane().Download(std::move(large)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("out of pinned host memory")));
  EXPECT_OK(Complete(lane()));
}

TEST_F(CudaDeviceTest, AFullGpuIsOutOfMemoryAndServesOn) {
  injection_.FillGpu();
  EXPECT_THAT(lane().Allocate(30 * kMiB), StatusIs(absl::StatusCode::kResourceExhausted));
  injection_.Disarm();
  EXPECT_OK(lane().Allocate(30 * kMiB));
  EXPECT_OK(device_->health());
}

TEST_F(CudaDeviceTest, StandardAttentionTellsItsPhases) {
  std::vector<std::string> standard, flash;
  ASSERT_OK(AttendEqualRows(*device_, Algorithm::kStandard, nullptr, &standard));
  ASSERT_OK(AttendEqualRows(*device_, Algorithm::kFlash, nullptr, &flash));
  EXPECT_THAT(standard, ElementsAre("scores", "softmax", "values"));
  EXPECT_THAT(flash, ::testing::IsEmpty());
}

TEST_F(CudaDeviceTest, EveryCudaCallMayFailAndTheDeviceWorksOn) {
  const auto call_everything = [this](std::vector<float>& output) -> absl::Status {
    device_->EmptyMemoryCache();
    for (const Algorithm algorithm : {Algorithm::kStandard, Algorithm::kFlash}) {
      RIDGELINE_ASSIGN_OR_RETURN(output, AttendEqualRows(*device_, algorithm, nullptr));
    }
    const absl::StatusOr<std::unique_ptr<Event>> event = lane().Record();
    return event.ok() ? Complete(lane()) : event.status();
  };
  constexpr int kInvalidValue = 1;
  std::vector<float> output;
  for (int n = 0;; ++n) {
    injection_.FailCall(n, kInvalidValue);
    output.clear();
    const absl::Status status = call_everything(output);
    injection_.Disarm();
    const std::string failed = injection_.TakeFailed();
    if (failed.empty()) {
      EXPECT_GT(n, 15) << "calls are made that nobody counts";
      break;
    }
    ASSERT_LT(n, 1000);
    if (status.ok()) {
      // These have another way: a completion that waits, or that looks without being told; memory that stays with CUDA, that is
      // asked for again when what lay idle was given back, or that is taken as a whole since it can't grow.
      EXPECT_THAT(failed, ::testing::AnyOf("cudaEventRecord", "cudaEventCreateWithFlags", "cudaFree", "cudaFreeHost",
                                           "cudaMalloc", "cudaHostAlloc", "cuMemAddressReserve"));
      EXPECT_THAT(output, Each(FloatNear(kEqualRows, 1e-6f))) << failed;
    } else {
      EXPECT_THAT(status.code(), ::testing::AnyOf(absl::StatusCode::kInternal, absl::StatusCode::kResourceExhausted)) << status;
    }
    EXPECT_EQ(device_->memory_stats().allocation_count, 0) << failed;
    EXPECT_OK(device_->health()) << failed;
    ASSERT_OK(call_everything(output)) << "after " << failed;
  }
}

TEST_F(CudaDeviceTest, AStickyErrorLosesTheDevice) {
  constexpr int kIllegalAddress = 700;
  std::promise<absl::Status> told;
  device_->OnLost([&told](const absl::Status& cause) { told.set_value(cause); });
  Lane& lane = this->lane();
  {
    const Buffer buffer = Upload(lane, Numbered(1000));
    injection_.FailNext("cudaEventQuery", kIllegalAddress);
    const auto is_loss =
        StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr("device is lost"), HasSubstr("cudaErrorIllegalAddress")));
    EXPECT_THAT(Complete(lane), is_loss);
    EXPECT_THAT(told.get_future().get(), is_loss);
    EXPECT_THAT(device_->health(), is_loss);
    EXPECT_EQ(base::ErrorReason(device_->health()), base::kReasonDeviceFailed);
    EXPECT_THAT(lane.Allocate(1), is_loss);
    EXPECT_THAT(lane.Record(), is_loss);
    EXPECT_THAT(Complete(device_->lane(1)), is_loss);
  }
}

// In a process of its own, whose context it poisons.
TEST_F(CudaDeviceTest, AKernelThatGoesWrongLosesTheDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fault = [this] {
    Lane& lane = this->lane();
    Buffer nowhere(nullptr, reinterpret_cast<void*>(std::uintptr_t{1} << 56), 1 << 20);
    if (!lane.Copy(nowhere, nowhere, 1 << 20).ok()) std::exit(1);
    const absl::Status completed = Complete(lane);
    const bool lost = absl::IsUnavailable(completed) && absl::IsUnavailable(device_->health());
    std::cerr << "completed: " << completed << "; health: " << device_->health() << std::endl;
    std::_Exit(lost ? 42 : 2);
  };
  EXPECT_EXIT(fault(), ::testing::ExitedWithCode(42), "");
}

TEST_F(CudaDeviceTest, TwoDevicesShareAGpu) {
  ASSERT_OK_AND_ASSIGN(const auto other, CreateCudaDevice({.num_lanes = 1, .memory_limit_bytes = 512 * kMiB}));
  const std::vector<float> values = Numbered(1000);
  ASSERT_OK_AND_ASSIGN(Buffer buffer, other->lane(0).Upload({SliceOf(values)}, nullptr));
  ASSERT_OK_AND_ASSIGN(const auto result, other->lane(0).Download(std::move(buffer)));
  EXPECT_EQ(Download(lane(), Upload(lane(), values)), values);
  ASSERT_OK(Complete(other->lane(0)));
  EXPECT_EQ(ValuesOf<float>(*result), values);
}

}  // namespace
}  // namespace ridgeline::device
