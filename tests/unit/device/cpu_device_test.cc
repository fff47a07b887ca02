#include "server/device/cpu_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/common/simd_target.h"
#include "kernels/microbench/microbench.h"
#include "server/base/error.h"
#include "server/device/thread_pool.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using kernels::DataType;
using kernels::attention::Algorithm;
using kernels::attention::AttentionParams;
using kernels::attention::AttentionPlan;
using kernels::attention::Sequence;

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

// Ends the lane's batch and waits for its status.
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

class CpuDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(device_, CreateCpuDevice({.num_lanes = 3, .num_threads = 2, .memory_limit_bytes = 512 * kMiB}));
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

TEST_F(CpuDeviceTest, UploadJoinsSlicesAndLetsThemGo) {
  const auto first = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3});
  const std::vector<float> second = {4};
  ASSERT_OK_AND_ASSIGN(Buffer buffer, device_->lane(0).Upload({SliceOf(*first), SliceOf(second)}, first));
  EXPECT_EQ(buffer.size_bytes(), 16);
  EXPECT_THAT(Download(0, std::move(buffer)), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(first.use_count(), 1) << "read, and still kept alive";
}

TEST_F(CpuDeviceTest, EmptyUploads) {
  ASSERT_OK_AND_ASSIGN(const Buffer no_slices, device_->lane(0).Upload({}, nullptr));
  ASSERT_OK_AND_ASSIGN(const Buffer no_elements, device_->lane(0).UploadRandom(DataType::kFloat32, 0, 1, 0, 1));
  EXPECT_EQ(no_slices.data(), nullptr);
  EXPECT_EQ(no_elements.data(), nullptr);
  EXPECT_OK(Complete(device_->lane(0)));
}

TEST_F(CpuDeviceTest, RandomElementsAreTheKernels) {
  constexpr std::int64_t kElements = 100'003;
  std::vector<float> want(kElements);
  ASSERT_OK_AND_ASSIGN(const auto pool, ThreadPool::Create(1));
  LaneExecutor executor(*pool);
  kernels::microbench::FillNormalOnCpu(DataType::kFloat32, kElements, 42, 1.5f, 0.5f, want.data(), executor);
  ASSERT_OK_AND_ASSIGN(Buffer buffer, device_->lane(0).UploadRandom(DataType::kFloat32, kElements, 42, 1.5f, 0.5f));
  EXPECT_EQ(Download(0, std::move(buffer)), want);
}

TEST_F(CpuDeviceTest, WorkOfALaneRunsInOrder) {
  // Each round reads what the one before wrote, in memory that was freed while work on it was still queued.
  std::vector<float> want(100'000);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] = static_cast<float>(i);
  Lane& lane = device_->lane(0);
  Buffer current = Upload(0, want);
  for (int round = 0; round < 20; ++round) {
    Buffer next = Allocate(0, current.size_bytes());
    ASSERT_OK(lane.Copy(next, current, current.size_bytes()));
    current = std::move(next);
  }
  EXPECT_EQ(Download(0, std::move(current)), want);
  EXPECT_LE(device_->memory_stats().peak_allocated_bytes, 3 * 400'384);
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

TEST_F(CpuDeviceTest, EventsMeasureTheWorkBetweenThem) {
  Lane& lane = device_->lane(0);
  const absl::Time start = absl::Now();
  ASSERT_OK_AND_ASSIGN(const auto before, lane.Record());
  ASSERT_OK_AND_ASSIGN(const Buffer buffer, lane.UploadRandom(DataType::kFloat32, 1 << 20, 1, 0, 1));
  ASSERT_OK_AND_ASSIGN(const auto after, lane.Record());
  ASSERT_OK_AND_ASSIGN(const auto right_after, lane.Record());
  ASSERT_OK(Complete(lane));
  EXPECT_GT(after->Since(*before), absl::Microseconds(50));  // a million elements take longer on any machine
  EXPECT_LE(after->Since(*before), absl::Now() - start);
  EXPECT_GE(right_after->Since(*after), absl::ZeroDuration());
}

TEST_F(CpuDeviceTest, EventsMayGoBeforeTheyAreReached) {
  ASSERT_OK(device_->lane(0).Record());
  EXPECT_OK(Complete(device_->lane(0)));
}

TEST_F(CpuDeviceTest, DownloadMovesNoByteAndKeepsTheMemory) {
  const std::vector<float> values = {1, 2, 3};
  Buffer buffer = Upload(0, values);
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

TEST_F(CpuDeviceTest, BudgetHoldsForEveryCallThatAllocates) {
  Lane& lane = device_->lane(0);
  const Buffer most = Allocate(0, 500 * kMiB);
  const std::vector<float> chunk(5 * kMiB);  // 20 MiB
  EXPECT_THAT(lane.Allocate(kMax), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(lane.Upload({SliceOf(chunk)}, nullptr), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(lane.Upload({{nullptr, kMax}, {nullptr, kMax}}, nullptr), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(lane.UploadRandom(DataType::kFloat32, kMax / 2, 1, 0, 1), StatusIs(absl::StatusCode::kResourceExhausted));
  const absl::Status status = lane.UploadRandom(DataType::kBFloat16, 10 * kMiB, 1, 0, 1).status();
  EXPECT_EQ(base::ErrorReason(status), base::kReasonOutOfMemory);
  EXPECT_EQ(device_->memory_stats().out_of_memory_count, 5);
  EXPECT_EQ(device_->memory_stats().allocation_count, 1);
  EXPECT_OK(Complete(lane)) << "what could not be queued is no failure of the lane";
}

TEST_F(CpuDeviceTest, EmptyMemoryCacheGivesBackWhatNothingUses) {
  {
    const Buffer cached = Allocate(0, 30 * kMiB);
    const Buffer cached_elsewhere = Allocate(1, 1000);
  }
  EXPECT_EQ(device_->EmptyMemoryCache(), 32 * kMiB);
  EXPECT_EQ(device_->memory_stats().reserved_bytes, 0);
  EXPECT_EQ(device_->memory_stats().peak_reserved_bytes, 32 * kMiB);
  device_->ResetPeakMemoryStats();
  EXPECT_EQ(device_->memory_stats().peak_reserved_bytes, 0);
}

TEST_F(CpuDeviceTest, GemmMultipliesByTheTranspose) {
  const Buffer a = Upload(0, {1, 2, 3, 4, 5, 6});  // 2 x 3
  const Buffer b = Upload(0, {1, 0, 0, 0, 1, 1});  // 2 x 3
  Buffer c = Allocate(0, 4 * sizeof(float));
  ASSERT_OK(device_->lane(0).Gemm(DataType::kFloat32, 2, 2, 3, a, b, c));
  EXPECT_THAT(Download(0, std::move(c)), ElementsAre(1, 5, 4, 11));
  EXPECT_EQ(device_->memory_stats().allocation_count, 2) << "the workspace came back";
}

// One query per row of `tokens` on as many keys, float32, one head; head_dim 8.
class AttendTest : public CpuDeviceTest {
 protected:
  void Prepare(std::int64_t tokens, Algorithm algorithm) {
    sequence_ = {.query_begin = 0, .query_tokens = tokens, .key_begin = 0, .key_tokens = tokens, .lse_begin = 0};
    params_.shape = {.data_type = DataType::kFloat32,
                     .output_data_type = DataType::kFloat32,
                     .num_sequences = 1,
                     .query_heads = 1,
                     .kv_heads = 1,
                     .head_dim = 8,
                     .value_head_dim = 8};
    params_.scale = 1;
    params_.sequences = &sequence_;
    ASSERT_OK_AND_ASSIGN(plan_, device_->PlanAttention(params_.shape, {&sequence_, 1}, algorithm));
    EXPECT_EQ(plan_.algorithm, algorithm);
    input_ = Allocate(0, tokens * 8 * sizeof(float));
    output_ = Allocate(0, tokens * 8 * sizeof(float));
    workspace_ = Allocate(0, plan_.workspace_bytes);
    params_.query = params_.key = params_.value = input_.data();
    params_.output = output_.data();
    params_.workspace = workspace_.data();
  }

  Sequence sequence_;
  AttentionParams params_;
  AttentionPlan plan_;
  Buffer input_;
  Buffer output_;
  Buffer workspace_;
};

TEST_F(AttendTest, BothAlgorithmsAttend) {
  for (const Algorithm algorithm : {Algorithm::kStandard, Algorithm::kFlash}) {
    Prepare(3, algorithm);
    const std::vector<float> same_rows(3 * 8, 0.5f);
    const Buffer input = Upload(0, same_rows);
    params_.query = params_.key = params_.value = input.data();
    ASSERT_OK(device_->lane(0).Attend(plan_, params_, {&sequence_, 1}, nullptr));
    const std::vector<float> got = Download(0, std::move(output_));
    ASSERT_EQ(got.size(), same_rows.size());
    EXPECT_THAT(got, Each(::testing::FloatNear(0.5f, 1e-6f))) << kernels::attention::Name(algorithm);
  }
}

TEST_F(AttendTest, CancelledBeforeItStartsItWritesNothing) {
  Prepare(4, Algorithm::kFlash);
  std::memset(output_.data(), 0x7b, 4 * 8 * sizeof(float));
  ASSERT_OK(device_->lane(0).Attend(plan_, params_, {&sequence_, 1}, std::make_shared<std::atomic<bool>>(true)));
  EXPECT_OK(Complete(device_->lane(0)));
  const char* const bytes = static_cast<const char*>(output_.data());
  EXPECT_TRUE(std::all_of(bytes, bytes + 4 * 8 * sizeof(float), [](char byte) { return byte == 0x7b; }));
}

TEST_F(AttendTest, CancelledWhileItRunsItEndsSoon) {
  constexpr std::int64_t kTokens = 1 << 20;  // the best part of a minute at the rate of any two cores
  Prepare(kTokens, Algorithm::kFlash);
  Lane& lane = device_->lane(0);
  const auto cancel = std::make_shared<std::atomic<bool>>(false);
  std::promise<void> reached;
  lane.OnComplete([&reached](absl::Status) { reached.set_value(); });
  ASSERT_OK(lane.Attend(plan_, params_, {&sequence_, 1}, cancel));
  std::promise<absl::Status> completed;
  lane.OnComplete([&completed](absl::Status status) { completed.set_value(std::move(status)); });
  std::future<absl::Status> status = completed.get_future();
  reached.get_future().wait();
  EXPECT_EQ(status.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout) << "too short to be cancelled";
  *cancel = true;
  ASSERT_EQ(status.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_OK(status.get());
}

TEST_F(CpuDeviceTest, DestructorFinishesQueuedWork) {
  const auto owner = std::make_shared<std::vector<float>>(1 << 20, 1.0f);
  absl::Status status = absl::UnknownError("not called");
  {
    const Buffer buffer = [&] {
      absl::StatusOr<Buffer> uploaded = device_->lane(0).Upload({SliceOf(*owner)}, owner);
      EXPECT_OK(uploaded);
      return *std::move(uploaded);
    }();
    device_->lane(0).OnComplete([&status](absl::Status s) { status = std::move(s); });
  }
  device_.reset();
  EXPECT_OK(status);
  EXPECT_EQ(owner.use_count(), 1);
}

// Requests on all lanes at once, each with its own data; the thread sanitizer watches.
TEST_F(CpuDeviceTest, LanesDoNotDisturbEachOther) {
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
        EXPECT_EQ(Download(lane_idx, std::move(copy)), values);
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
