// What every device's lanes do alike: bytes in and out, order, events, budgets, products, attention, cancellation, the end.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/microbench/microbench.h"
#include "server/base/error.h"
#include "server/device/thread_pool.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/attend_rows.h"
#include "tests/unit/device/device_under_test.h"
#include "tests/unit/device/lane_io.h"

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

using kernels::DataType;
using kernels::attention::Algorithm;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

class LaneTest : public DeviceTest {
 protected:
  Lane& lane() { return device_->lane(0); }
  bool is_cpu() const { return device_->info().type == DeviceType::kCpu; }
};

TEST_F(LaneTest, UploadJoinsSlicesAndLetsThemGo) {
  const auto first = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3});
  const std::vector<float> second = {4};
  ASSERT_OK_AND_ASSIGN(Buffer buffer, lane().Upload({SliceOf(*first), SliceOf(second)}, first));
  EXPECT_EQ(buffer.size_bytes(), 16);
  EXPECT_THAT(Download(lane(), std::move(buffer)), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(first.use_count(), 1) << "read, and still kept alive";
}

TEST_F(LaneTest, EmptyUploadsAndDownloads) {
  ASSERT_OK_AND_ASSIGN(const Buffer no_slices, lane().Upload({}, nullptr));
  ASSERT_OK_AND_ASSIGN(const Buffer no_elements, lane().UploadRandom(DataType::kFloat32, 0, 1, 0, 1));
  EXPECT_EQ(no_slices.data(), nullptr);
  EXPECT_EQ(no_elements.data(), nullptr);
  ASSERT_OK_AND_ASSIGN(const auto nothing, lane().Download(Buffer()));
  EXPECT_EQ(nothing->size_bytes(), 0);
  EXPECT_OK(Complete(lane()));
}

TEST_F(LaneTest, ManySmallUploadsInOneBatch) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < 3000; ++i) buffers.push_back(Upload(lane(), std::vector<float>(1 + i, static_cast<float>(i))));
  std::vector<std::shared_ptr<const HostBuffer>> results;
  for (Buffer& buffer : buffers) {
    ASSERT_OK_AND_ASSIGN(auto result, lane().Download(std::move(buffer)));
    results.push_back(std::move(result));
  }
  ASSERT_OK(Complete(lane()));
  for (int i = 0; i < 3000; ++i) EXPECT_TRUE(ValuesOf<float>(*results[i]) == std::vector<float>(1 + i, static_cast<float>(i)));
}

TEST_F(LaneTest, AMessageInManySlices) {
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
  ASSERT_OK_AND_ASSIGN(Buffer buffer, lane().Upload(slices, nullptr));
  EXPECT_TRUE(Download(lane(), std::move(buffer)) == values);
}

// On the CPU itself to the last bit, elsewhere to their rounding.
TEST_F(LaneTest, RandomElementsAreTheCpus) {
  constexpr std::int64_t kElements = 100'003;
  std::vector<float> want(kElements);
  ASSERT_OK_AND_ASSIGN(const auto pool, ThreadPool::Create(1));
  LaneExecutor executor(*pool);
  kernels::microbench::FillNormalOnCpu(DataType::kFloat32, kElements, 42, 1.5f, 0.5f, want.data(), executor);
  ASSERT_OK_AND_ASSIGN(Buffer buffer, lane().UploadRandom(DataType::kFloat32, kElements, 42, 1.5f, 0.5f));
  const float tolerance = is_cpu() ? 0 : 1e-5f;
  EXPECT_THAT(Download(lane(), std::move(buffer)), Pointwise(FloatNear(tolerance), want));
}

TEST_F(LaneTest, WorkRunsInOrder) {
  // Each round reads what the one before wrote, in memory that was freed while work on it was still queued.
  const std::vector<float> want = Numbered(100'000);
  Buffer current = Upload(lane(), want);
  for (int round = 0; round < 20; ++round) {
    Buffer next = Allocate(lane(), current.size_bytes());
    ASSERT_OK(lane().Copy(next, current, current.size_bytes()));
    current = std::move(next);
  }
  EXPECT_TRUE(Download(lane(), std::move(current)) == want);
  EXPECT_LE(device_->memory_stats().peak_allocated_bytes, 3 * 400'384);
}

TEST_F(LaneTest, EventsMeasureTheWorkBetweenThem) {
  const absl::Time start = absl::Now();
  ASSERT_OK_AND_ASSIGN(const auto before, lane().Record());
  ASSERT_OK_AND_ASSIGN(const Buffer buffer, lane().UploadRandom(DataType::kFloat32, 4 << 20, 1, 0, 1));
  ASSERT_OK_AND_ASSIGN(const auto after, lane().Record());
  ASSERT_OK_AND_ASSIGN(const auto right_after, lane().Record());
  ASSERT_OK(Complete(lane()));
  // Four million elements take longer on any CPU, and their 16 MiB at any bandwidth of today.
  EXPECT_GT(after->Since(*before), is_cpu() ? absl::Microseconds(200) : absl::Nanoseconds(1250));
  EXPECT_LE(after->Since(*before), absl::Now() - start);
  EXPECT_GE(right_after->Since(*after), absl::ZeroDuration());
}

TEST_F(LaneTest, EventsMayGoBeforeTheyAreReached) {
  for (int i = 0; i < 100; ++i) ASSERT_OK(lane().Record());
  EXPECT_OK(Complete(lane()));
}

TEST_F(LaneTest, BudgetHoldsForEveryCallThatAllocates) {
  const Buffer most = Allocate(lane(), kMemoryLimitBytes - 8 * kMiB);
  const std::vector<float> chunk(5 * kMiB);  // 20 MiB
  EXPECT_THAT(lane().Allocate(kMax), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(lane().Upload({SliceOf(chunk)}, nullptr), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(lane().Upload({{nullptr, kMax}, {nullptr, kMax}}, nullptr), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(lane().UploadRandom(DataType::kFloat32, kMax / 2, 1, 0, 1), StatusIs(absl::StatusCode::kResourceExhausted));
  const absl::Status status = lane().UploadRandom(DataType::kBFloat16, 10 * kMiB, 1, 0, 1).status();
  EXPECT_EQ(base::ErrorReason(status), base::kReasonOutOfMemory);
  EXPECT_EQ(device_->memory_stats().out_of_memory_count, 5);
  EXPECT_EQ(device_->memory_stats().allocation_count, 1);
  EXPECT_OK(Complete(lane())) << "what could not be queued is no failure of the lane";
}

TEST_F(LaneTest, GemmMultipliesByTheTranspose) {
  const Buffer a = Upload<float>(lane(), {1, 2, 3, 4, 5, 6});  // 2 x 3
  const Buffer b = Upload<float>(lane(), {1, 0, 0, 0, 1, 1});  // 2 x 3
  Buffer c = Allocate(lane(), 4 * sizeof(float));
  ASSERT_OK(lane().Gemm(DataType::kFloat32, 2, 2, 3, a, b, c));
  EXPECT_THAT(Download(lane(), std::move(c)), ElementsAre(1, 5, 4, 11));
}

TEST_F(LaneTest, BothAlgorithmsAttend) {
  for (const Algorithm algorithm : {Algorithm::kStandard, Algorithm::kFlash}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<float> output, AttendEqualRows(*device_, algorithm, nullptr));
    EXPECT_THAT(output, Each(FloatNear(kEqualRows, 1e-6f))) << Name(algorithm);
  }
}

TEST_F(LaneTest, CancelledBeforeItStartsAttentionWritesNothing) {
  for (const Algorithm algorithm : {Algorithm::kStandard, Algorithm::kFlash}) {
    const auto cancelled = std::make_shared<std::atomic<bool>>(true);
    ASSERT_OK_AND_ASSIGN(const std::vector<float> output, AttendEqualRows(*device_, algorithm, cancelled));
    EXPECT_THAT(output, Each(kUntouched)) << Name(algorithm);
  }
}

TEST_F(LaneTest, DestructorFinishesQueuedWork) {
  const auto owner = std::make_shared<std::vector<float>>(1 << 20, 1.0f);
  absl::Status status = absl::UnknownError("not called");
  {
    ASSERT_OK_AND_ASSIGN(const Buffer buffer, lane().Upload({SliceOf(*owner)}, owner));
    lane().OnComplete([&status](absl::Status s) { status = std::move(s); });
  }
  device_.reset();
  EXPECT_OK(status);
  EXPECT_EQ(owner.use_count(), 1);
}

// Requests on all lanes at once, each with its own data; the thread sanitizer watches.
TEST_F(LaneTest, LanesDoNotDisturbEachOther) {
  std::vector<std::thread> clients;
  for (int lane_idx = 0; lane_idx < device_->num_lanes(); ++lane_idx) {
    clients.emplace_back([this, lane_idx] {
      Lane& lane = device_->lane(lane_idx);
      std::mt19937 random(lane_idx);
      for (int round = 0; round < 50; ++round) {
        std::vector<float> values(1 + random() % 200'000);
        std::generate(values.begin(), values.end(), [&random] { return static_cast<float>(random()); });
        const Buffer source = Upload(lane, values);
        Buffer copy = Allocate(lane, source.size_bytes());
        EXPECT_OK(lane.Copy(copy, source, source.size_bytes()));
        EXPECT_TRUE(Download(lane, std::move(copy)) == values);
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
