// The CUDA device on a GPU. Each test skips, with the reason, where there is none.
#include "server/device/cuda_device.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <future>
#include <iostream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/microbench/microbench.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/device/staging_ring.h"
#include "server/device/thread_pool.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

using kernels::DataType;
using kernels::attention::Algorithm;
using kernels::attention::AttentionParams;
using kernels::attention::AttentionPlan;
using kernels::attention::Sequence;

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

absl::Status Complete(Lane& lane) {
  std::promise<absl::Status> status;
  lane.OnComplete([&status](absl::Status s) { status.set_value(std::move(s)); });
  return status.get_future().get();
}

template <typename T>
HostSlice SliceOf(const std::vector<T>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size() * sizeof(T))};
}

template <typename T>
std::vector<T> ValuesOf(const HostBuffer& buffer) {
  const T* const values = static_cast<const T*>(buffer.data());
  return std::vector<T>(values, values + buffer.size_bytes() / sizeof(T));
}

std::vector<float> Numbered(std::int64_t count) {
  std::vector<float> values(count);
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

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

  Buffer Upload(int lane, const std::vector<float>& values) {
    const auto owner = std::make_shared<const std::vector<float>>(values);
    absl::StatusOr<Buffer> buffer = device_->lane(lane).Upload({SliceOf(*owner)}, owner);
    EXPECT_OK(buffer);
    return buffer.ok() ? *std::move(buffer) : Buffer();
  }

  Buffer Allocate(int lane, std::int64_t size_bytes) {
    absl::StatusOr<Buffer> buffer = device_->lane(lane).Allocate(size_bytes);
    EXPECT_OK(buffer);
    return buffer.ok() ? *std::move(buffer) : Buffer();
  }

  std::vector<float> Download(int lane, Buffer buffer) {
    absl::StatusOr<std::shared_ptr<const HostBuffer>> result = device_->lane(lane).Download(std::move(buffer));
    EXPECT_OK(result);
    EXPECT_OK(Complete(device_->lane(lane)));
    return result.ok() ? ValuesOf<float>(**result) : std::vector<float>();
  }

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

TEST_F(CudaDeviceTest, UploadJoinsSlicesAndLetsThemGo) {
  const auto first = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3});
  const std::vector<float> second = {4};
  ASSERT_OK_AND_ASSIGN(Buffer buffer, device_->lane(0).Upload({SliceOf(*first), SliceOf(second)}, first));
  EXPECT_EQ(buffer.size_bytes(), 16);
  EXPECT_THAT(Download(0, std::move(buffer)), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(first.use_count(), 1) << "read, and still kept alive";
}

TEST_F(CudaDeviceTest, EmptyUploadsAndDownloads) {
  ASSERT_OK_AND_ASSIGN(const Buffer no_slices, device_->lane(0).Upload({}, nullptr));
  ASSERT_OK_AND_ASSIGN(const Buffer no_elements, device_->lane(0).UploadRandom(DataType::kFloat32, 0, 1, 0, 1));
  EXPECT_EQ(no_slices.data(), nullptr);
  EXPECT_EQ(no_elements.data(), nullptr);
  ASSERT_OK_AND_ASSIGN(const auto nothing, device_->lane(0).Download(Buffer()));
  EXPECT_EQ(nothing->size_bytes(), 0);
  EXPECT_OK(Complete(device_->lane(0)));
}

TEST_F(CudaDeviceTest, UploadsLargerThanTheStagingRing) {
  const std::int64_t ring_floats = StagingRing::kNumSlots * StagingRing::kSlotBytes / sizeof(float);
  for (const std::int64_t count : {ring_floats - 1, ring_floats, ring_floats + 1, 3 * ring_floats + 12'345}) {
    const std::vector<float> values = Numbered(count);
    EXPECT_TRUE(Download(0, Upload(0, values)) == values) << count;
  }
}

TEST_F(CudaDeviceTest, ManySmallUploadsInOneBatch) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < 3000; ++i) buffers.push_back(Upload(0, std::vector<float>(1 + i, static_cast<float>(i))));
  std::vector<std::shared_ptr<const HostBuffer>> results;
  for (Buffer& buffer : buffers) {
    ASSERT_OK_AND_ASSIGN(auto result, device_->lane(0).Download(std::move(buffer)));
    results.push_back(std::move(result));
  }
  ASSERT_OK(Complete(device_->lane(0)));
  for (int i = 0; i < 3000; ++i) EXPECT_TRUE(ValuesOf<float>(*results[i]) == std::vector<float>(1 + i, static_cast<float>(i)));
}

TEST_F(CudaDeviceTest, AMessageInManySlices) {
  const std::vector<float> values = Numbered(8 * kMiB);
  std::mt19937 random(1);
  const char* const bytes = reinterpret_cast<const char*>(values.data());
  std::vector<HostSlice> slices;
  const std::int64_t end = SliceOf(values).size_bytes;
  for (std::int64_t begin = 0; begin < end;) {
    const std::int64_t size = std::min<std::int64_t>(random() % 20'000, end - begin);
    slices.push_back({bytes + begin, size});
    begin += size;
  }
  ASSERT_OK_AND_ASSIGN(Buffer buffer, device_->lane(0).Upload(slices, nullptr));
  EXPECT_TRUE(Download(0, std::move(buffer)) == values);
}

TEST_F(CudaDeviceTest, RandomElementsAreTheCpusToTheirRounding) {
  constexpr std::int64_t kElements = 100'003;
  std::vector<float> want(kElements);
  ASSERT_OK_AND_ASSIGN(const auto pool, ThreadPool::Create(1));
  LaneExecutor executor(*pool);
  kernels::microbench::FillNormalOnCpu(DataType::kFloat32, kElements, 42, 1.5f, 0.5f, want.data(), executor);
  ASSERT_OK_AND_ASSIGN(Buffer buffer, device_->lane(0).UploadRandom(DataType::kFloat32, kElements, 42, 1.5f, 0.5f));
  EXPECT_THAT(Download(0, std::move(buffer)), Pointwise(FloatNear(1e-5f), want));
}

TEST_F(CudaDeviceTest, WorkOfALaneRunsInOrder) {
  // Each round reads what the one before wrote, in memory that was freed while work on it was still queued.
  const std::vector<float> want = Numbered(100'000);
  Lane& lane = device_->lane(0);
  Buffer current = Upload(0, want);
  for (int round = 0; round < 20; ++round) {
    Buffer next = Allocate(0, current.size_bytes());
    ASSERT_OK(lane.Copy(next, current, current.size_bytes()));
    current = std::move(next);
  }
  EXPECT_TRUE(Download(0, std::move(current)) == want);
  EXPECT_LE(device_->memory_stats().peak_allocated_bytes, 3 * 400'384);
}

// Some hundred milliseconds of work, queued in a fraction of that.
void QueueLongWork(Lane& lane, const Buffer& a, const Buffer& b, Buffer& c) {
  for (int i = 0; i < 500; ++i) ASSERT_OK(lane.Gemm(DataType::kFloat32, 2048, 2048, 2048, a, b, c));
}

TEST_F(CudaDeviceTest, LanesRunSideBySide) {
  Lane& lane = device_->lane(0);
  ASSERT_OK_AND_ASSIGN(const Buffer a, lane.UploadRandom(DataType::kFloat32, 2048 * 2048, 1, 0, 1));
  Buffer c = Allocate(0, a.size_bytes());
  QueueLongWork(lane, a, a, c);
  std::atomic<bool> first_done = false;
  std::promise<void> first;
  lane.OnComplete([&](absl::Status status) {
    EXPECT_OK(status);
    first_done = true;
    first.set_value();
  });
  EXPECT_THAT(Download(1, Upload(1, {1, 2, 3})), ElementsAre(1, 2, 3));
  EXPECT_FALSE(first_done) << "the second lane waited for the first";
  first.get_future().wait();
}

TEST_F(CudaDeviceTest, MemoryInUseByTheStreamIsNotGivenBack) {
  Lane& lane = device_->lane(0);
  ASSERT_OK_AND_ASSIGN(Buffer a, lane.UploadRandom(DataType::kFloat32, 2048 * 2048, 1, 0, 1));
  Buffer c = Allocate(0, a.size_bytes());
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

TEST_F(CudaDeviceTest, EventsMeasureTheWorkBetweenThem) {
  Lane& lane = device_->lane(0);
  const absl::Time start = absl::Now();
  ASSERT_OK_AND_ASSIGN(const auto before, lane.Record());
  ASSERT_OK_AND_ASSIGN(const Buffer buffer, lane.UploadRandom(DataType::kFloat32, 64 << 20, 1, 0, 1));
  ASSERT_OK_AND_ASSIGN(const auto after, lane.Record());
  ASSERT_OK_AND_ASSIGN(const auto right_after, lane.Record());
  ASSERT_OK(Complete(lane));
  EXPECT_GT(after->Since(*before), absl::Microseconds(20));  // 256 MiB take longer at any bandwidth of today
  EXPECT_LE(after->Since(*before), absl::Now() - start);
  EXPECT_GE(right_after->Since(*after), absl::ZeroDuration());
}

TEST_F(CudaDeviceTest, EventsMayGoBeforeTheyAreReached) {
  for (int i = 0; i < 100; ++i) ASSERT_OK(device_->lane(0).Record());
  EXPECT_OK(Complete(device_->lane(0)));
}

TEST_F(CudaDeviceTest, ResultsOutliveTheBatchAndCountAsPinnedMemory) {
  const std::vector<float> values = Numbered(1000);
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<const HostBuffer> result, device_->lane(0).Download(Upload(0, values)));
  ASSERT_OK(Complete(device_->lane(0)));
  EXPECT_EQ(device_->memory_stats().allocation_count, 0);
  EXPECT_EQ(device_->pinned_memory_stats()->allocation_count, 1);
  for (int i = 0; i < 10; ++i) Download(0, Upload(0, std::vector<float>(1000)));
  EXPECT_EQ(ValuesOf<float>(*result), values) << "written over while it was held";
  result.reset();
  EXPECT_EQ(device_->pinned_memory_stats()->allocation_count, 0);
}

TEST_F(CudaDeviceTest, BudgetHoldsForEveryCallThatAllocates) {
  Lane& lane = device_->lane(0);
  const Buffer most = Allocate(0, 2040 * kMiB);
  const std::vector<float> chunk(5 * kMiB);  // 20 MiB
  EXPECT_THAT(lane.Allocate(kMax), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(lane.Upload({SliceOf(chunk)}, nullptr), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(lane.UploadRandom(DataType::kFloat32, kMax / 2, 1, 0, 1), StatusIs(absl::StatusCode::kResourceExhausted));
  const absl::Status status = lane.UploadRandom(DataType::kBFloat16, 10 * kMiB, 1, 0, 1).status();
  EXPECT_EQ(base::ErrorReason(status), base::kReasonOutOfMemory);
  EXPECT_EQ(device_->memory_stats().out_of_memory_count, 4);
  EXPECT_EQ(device_->memory_stats().allocation_count, 1);
  EXPECT_OK(Complete(lane)) << "what could not be queued is no failure of the lane";
}

TEST_F(CudaDeviceTest, ResultsHaveABudgetOfTheirOwn) {
  Buffer large = Allocate(0, 300 * kMiB);
  EXPECT_THAT(device_->lane(0).Download(std::move(large)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("out of pinned host memory")));
  EXPECT_OK(Complete(device_->lane(0)));
}

TEST_F(CudaDeviceTest, AFullGpuIsOutOfMemoryAndServesOn) {
  injection_.FillGpu();
  EXPECT_THAT(device_->lane(0).Allocate(30 * kMiB), StatusIs(absl::StatusCode::kResourceExhausted));
  injection_.Disarm();
  EXPECT_OK(device_->lane(0).Allocate(30 * kMiB));
  EXPECT_OK(device_->health());
}

TEST_F(CudaDeviceTest, GemmMultipliesByTheTranspose) {
  const Buffer a = Upload(0, {1, 2, 3, 4, 5, 6});  // 2 x 3
  const Buffer b = Upload(0, {1, 0, 0, 0, 1, 1});  // 2 x 3
  Buffer c = Allocate(0, 4 * sizeof(float));
  ASSERT_OK(device_->lane(0).Gemm(DataType::kFloat32, 2, 2, 3, a, b, c));
  EXPECT_THAT(Download(0, std::move(c)), ElementsAre(1, 5, 4, 11));
}

// Float32, one head, as many queries as keys.
class CudaAttendTest : public CudaDeviceTest {
 protected:
  static constexpr std::int64_t kTokens = 100, kHeadDim = 8;

  // Attention over equal rows, which gives those rows. `phases` may be null.
  absl::Status Attend(Algorithm algorithm, CancelToken cancel, std::vector<float>& output,
                      std::vector<std::string>* phases = nullptr) {
    Held held;
    const absl::Status queued = Queue(algorithm, std::move(cancel), held);
    // After a failure too: what had been queued uses what is held.
    const absl::Status completed = Complete(device_->lane(0));
    RIDGELINE_RETURN_IF_ERROR(queued);
    RIDGELINE_RETURN_IF_ERROR(completed);
    output = ValuesOf<float>(*held.result);
    if (phases == nullptr) return absl::OkStatus();
    for (const KernelPhase& phase : held.phases) phases->push_back(phase.name);
    return absl::OkStatus();
  }

 private:
  struct Held {
    Buffer sequences, input, output, workspace;
    std::vector<KernelPhase> phases;
    std::shared_ptr<const HostBuffer> result;
  };

  absl::Status Queue(Algorithm algorithm, CancelToken cancel, Held& held) {
    Lane& lane = device_->lane(0);
    AttentionParams params = {};
    params.shape = {.data_type = DataType::kFloat32,
                    .output_data_type = DataType::kFloat32,
                    .num_sequences = 1,
                    .query_heads = 1,
                    .kv_heads = 1,
                    .head_dim = kHeadDim,
                    .value_head_dim = kHeadDim};
    params.scale = 1;
    RIDGELINE_ASSIGN_OR_RETURN(const AttentionPlan plan, device_->PlanAttention(params.shape, {&sequence_, 1}, algorithm));
    RIDGELINE_ASSIGN_OR_RETURN(held.sequences, lane.Upload({{&sequence_, sizeof(sequence_)}}, nullptr));
    RIDGELINE_ASSIGN_OR_RETURN(held.input, lane.Upload({SliceOf(rows_)}, nullptr));
    RIDGELINE_ASSIGN_OR_RETURN(held.output, lane.Upload({SliceOf(untouched_)}, nullptr));
    RIDGELINE_ASSIGN_OR_RETURN(held.workspace, lane.Allocate(plan.workspace_bytes));
    params.sequences = static_cast<const Sequence*>(held.sequences.data());
    params.query = params.key = params.value = held.input.data();
    params.output = held.output.data();
    params.workspace = held.workspace.data();
    RIDGELINE_ASSIGN_OR_RETURN(held.phases, lane.Attend(plan, params, {&sequence_, 1}, std::move(cancel)));
    RIDGELINE_ASSIGN_OR_RETURN(held.result, lane.Download(std::move(held.output)));
    return absl::OkStatus();
  }

 protected:
  const Sequence sequence_ = {.query_begin = 0, .query_tokens = kTokens, .key_begin = 0, .key_tokens = kTokens, .lse_begin = 0};
  const std::vector<float> rows_ = std::vector<float>(kTokens * kHeadDim, 0.5f);
  const std::vector<float> untouched_ = std::vector<float>(kTokens * kHeadDim, 7.0f);
};

TEST_F(CudaAttendTest, BothAlgorithmsAttend) {
  for (const Algorithm algorithm : {Algorithm::kStandard, Algorithm::kFlash}) {
    std::vector<float> output;
    std::vector<std::string> phases;
    ASSERT_OK(Attend(algorithm, nullptr, output, &phases)) << Name(algorithm);
    EXPECT_THAT(output, Each(FloatNear(0.5f, 1e-6f))) << Name(algorithm);
    const auto want = algorithm == Algorithm::kStandard ? std::vector<std::string>{"scores", "softmax", "values"}
                                                        : std::vector<std::string>();
    EXPECT_EQ(phases, want);
  }
}

TEST_F(CudaAttendTest, CancelledBeforeItStartsItWritesNothing) {
  for (const Algorithm algorithm : {Algorithm::kStandard, Algorithm::kFlash}) {
    std::vector<float> output;
    ASSERT_OK(Attend(algorithm, std::make_shared<std::atomic<bool>>(true), output));
    EXPECT_EQ(output, untouched_) << Name(algorithm);
  }
}

TEST_F(CudaAttendTest, EveryCudaCallMayFailAndTheDeviceWorksOn) {
  const auto call_everything = [this](std::vector<float>& output) -> absl::Status {
    device_->EmptyMemoryCache();
    RIDGELINE_RETURN_IF_ERROR(Attend(Algorithm::kStandard, nullptr, output));
    RIDGELINE_RETURN_IF_ERROR(Attend(Algorithm::kFlash, nullptr, output));
    const absl::StatusOr<std::unique_ptr<Event>> event = device_->lane(0).Record();
    return event.ok() ? Complete(device_->lane(0)) : event.status();
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
      EXPECT_THAT(output, Each(FloatNear(0.5f, 1e-6f))) << failed;
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
  Lane& lane = device_->lane(0);
  {
    const Buffer buffer = Upload(0, Numbered(1000));
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
    Lane& lane = device_->lane(0);
    Buffer nowhere(nullptr, reinterpret_cast<void*>(std::uintptr_t{1} << 56), 1 << 20);
    if (!lane.Copy(nowhere, nowhere, 1 << 20).ok()) std::exit(1);
    const absl::Status completed = Complete(lane);
    const bool lost = absl::IsUnavailable(completed) && absl::IsUnavailable(device_->health());
    std::cerr << "completed: " << completed << "; health: " << device_->health() << std::endl;
    std::_Exit(lost ? 42 : 2);
  };
  EXPECT_EXIT(fault(), ::testing::ExitedWithCode(42), "");
}

TEST_F(CudaDeviceTest, DestructorFinishesQueuedWork) {
  const auto owner = std::make_shared<std::vector<float>>(1 << 20, 1.0f);
  absl::Status status = absl::UnknownError("not called");
  {
    ASSERT_OK_AND_ASSIGN(const Buffer buffer, device_->lane(0).Upload({SliceOf(*owner)}, owner));
    device_->lane(0).OnComplete([&status](absl::Status s) { status = std::move(s); });
  }
  device_.reset();
  EXPECT_OK(status);
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_F(CudaDeviceTest, TwoDevicesShareAGpu) {
  ASSERT_OK_AND_ASSIGN(const auto other, CreateCudaDevice({.num_lanes = 1, .memory_limit_bytes = 512 * kMiB}));
  const std::vector<float> values = Numbered(1000);
  ASSERT_OK_AND_ASSIGN(Buffer buffer, other->lane(0).Upload({SliceOf(values)}, nullptr));
  ASSERT_OK_AND_ASSIGN(const auto result, other->lane(0).Download(std::move(buffer)));
  EXPECT_EQ(Download(0, Upload(0, values)), values);
  ASSERT_OK(Complete(other->lane(0)));
  EXPECT_EQ(ValuesOf<float>(*result), values);
}

// Requests on all lanes at once, each with its own data.
TEST_F(CudaDeviceTest, LanesDoNotDisturbEachOther) {
  std::vector<std::thread> clients;
  for (int lane_idx = 0; lane_idx < device_->num_lanes(); ++lane_idx) {
    clients.emplace_back([this, lane_idx] {
      std::mt19937 random(lane_idx);
      for (int round = 0; round < 50; ++round) {
        std::vector<float> values(1 + random() % 200'000);
        std::generate(values.begin(), values.end(), [&random] { return static_cast<float>(random()); });
        const Buffer source = Upload(lane_idx, values);
        Buffer copy = Allocate(lane_idx, source.size_bytes());
        EXPECT_OK(device_->lane(lane_idx).Copy(copy, source, source.size_bytes()));
        EXPECT_TRUE(Download(lane_idx, std::move(copy)) == values);
        device_->EmptyMemoryCache();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(device_->memory_stats().allocation_count, 0);
  device_->EmptyMemoryCache();
  EXPECT_EQ(device_->memory_stats().reserved_bytes, 0);
}

}  // namespace
}  // namespace ridgeline::device
