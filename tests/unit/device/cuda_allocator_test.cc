// The caching allocator over a GPU's memory: the plain model's traces with memory that is there, and is touched; and failures
// of every call to the driver.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/device/caching_allocator.h"
#include "server/device/cuda_context.h"
#include "server/device/cuda_memory.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/allocator_model.h"

namespace ridgeline::device {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kLimitBytes = 2048 * kMiB;

// A GPU's memory, and where there is some.
class TrackedMemory final : public MemorySource, public GrowingMemory {
 public:
  TrackedMemory(CudaContext& context, bool can_grow) : memory_(context), can_grow_(can_grow) {}

  absl::StatusOr<void*> Map(std::int64_t size_bytes) override {
    absl::StatusOr<void*> data = memory_.Map(size_bytes);
    if (data.ok()) mapped_[static_cast<const char*>(*data)] = size_bytes;
    return data;
  }
  void Unmap(void* data, std::int64_t size_bytes) override {
    mapped_.erase(static_cast<const char*>(data));
    memory_.Unmap(data, size_bytes);
  }
  GrowingMemory* growing() override { return can_grow_ && memory_.growing() != nullptr ? this : nullptr; }

  absl::StatusOr<void*> ReserveAddresses(std::int64_t size_bytes) override {
    return memory_.growing()->ReserveAddresses(size_bytes);
  }
  void ReleaseAddresses(void* addresses, std::int64_t size_bytes) override {
    memory_.growing()->ReleaseAddresses(addresses, size_bytes);
  }
  absl::Status MapChunk(void* address, std::int64_t size_bytes) override {
    absl::Status status = memory_.growing()->MapChunk(address, size_bytes);
    if (status.ok()) mapped_[static_cast<const char*>(address)] = size_bytes;
    return status;
  }
  void UnmapChunk(void* address, std::int64_t size_bytes) override {
    mapped_.erase(static_cast<const char*>(address));
    memory_.growing()->UnmapChunk(address, size_bytes);
  }

  std::int64_t mapped_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& [data, size_bytes] : mapped_) bytes += size_bytes;
    return bytes;
  }
  bool IsMapped(const char* data, std::int64_t size_bytes) const {
    auto chunk = mapped_.upper_bound(data);
    if (chunk == mapped_.begin()) return false;
    const char* at = data;
    for (--chunk; chunk != mapped_.end() && chunk->first <= at && at < data + size_bytes; ++chunk) {
      at = chunk->first + chunk->second;
    }
    return at >= data + size_bytes;
  }

 private:
  CudaMemory memory_;
  const bool can_grow_;
  std::map<const char*, std::int64_t> mapped_;
};

struct Subject {
  Subject(CudaContext& context, bool grows)
      : memory(context, grows),
        allocator(memory, kLimitBytes, lanes),
        model(allocator, lanes,
              {.mapped_bytes = [this] { return memory.mapped_bytes(); },
               .is_mapped = [this](const char* data, std::int64_t bytes) { return memory.IsMapped(data, bytes); }},
              /*splits_exactly=*/false) {}

  AllocatorModel::Lanes lanes;
  TrackedMemory memory;
  CachingAllocator allocator;
  AllocatorModel model;
};

class CudaAllocatorTest : public ::testing::TestWithParam<std::tuple<bool, std::uint64_t>> {
 protected:
  void SetUp() override {
    int num_devices = 0;
    if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices == 0) GTEST_SKIP() << "no CUDA device";
  }

  bool grows() const { return std::get<0>(GetParam()); }
  std::uint64_t seed() const { return std::get<1>(GetParam()); }
};

// Writes to the first and the last bytes of all blocks that somebody holds.
void TouchAll(const MemorySnapshot& snapshot) {
  for (const SegmentSnapshot& segment : snapshot.segments) {
    const char* data = segment.data;
    for (const SegmentSnapshot::Block& block : segment.blocks) {
      if (block.use == BlockUse::kAllocated) {
        ASSERT_EQ(cudaMemset(const_cast<char*>(data), 1, 512), cudaSuccess);
        ASSERT_EQ(cudaMemset(const_cast<char*>(data) + block.size_bytes - 512, 1, 512), cudaSuccess);
      }
      data += block.size_bytes;
    }
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_P(CudaAllocatorTest, RandomTraces) {
  CudaContext context(0, nullptr);
  Subject subject(context, grows());
  std::mt19937_64 random(seed());
  for (int step = 0; step < 500; ++step) {
    SCOPED_TRACE(step);
    subject.model.TakeRandomStep(random, kLimitBytes);
    subject.model.Check();
    if (step % 20 == 0) TouchAll(subject.allocator.snapshot());
    ASSERT_FALSE(HasFailure());
  }
  if (grows()) {
    EXPECT_NE(subject.memory.growing(), nullptr) << "this GPU has no virtual memory management";
  }
  subject.model.CheckEnd();
  EXPECT_OK(context.loss().status());
}

// Each call to the driver that takes memory fails in turn, alone; calls that give memory back are made.
TEST_P(CudaAllocatorTest, EveryCallToTheDriverFails) {
  const auto run = [this](std::int64_t failing_call) {
    std::int64_t num_calls = 0;
    CudaContext context(0, [&](const char* call) {
      const bool takes = absl::StrContains(call, "Malloc") || absl::StrContains(call, "Create") ||
                         absl::StrContains(call, "Map") || absl::StrContains(call, "SetAccess") ||
                         absl::StrContains(call, "Reserve");
      const bool gives_back = absl::StrContains(call, "Unmap");
      if (!takes || gives_back) return static_cast<int>(cudaSuccess);
      return static_cast<int>(num_calls++ == failing_call ? cudaErrorMemoryAllocation : cudaSuccess);
    });
    Subject subject(context, grows());
    std::mt19937_64 random(seed());
    for (int step = 0; step < 40 && !HasFailure(); ++step) {
      SCOPED_TRACE(step);
      subject.model.TakeRandomStep(random, kLimitBytes);
      subject.model.Check();
    }
    TouchAll(subject.allocator.snapshot());
    subject.model.CheckEnd();
    EXPECT_OK(context.loss().status());
    return num_calls;
  };
  const std::int64_t num_calls = run(-1);
  ASSERT_GT(num_calls, 0);
  const std::int64_t stride = std::max<std::int64_t>(1, num_calls / 40);
  for (std::int64_t call = 0; call < num_calls && !HasFailure(); call += call < 20 ? 1 : stride) {
    SCOPED_TRACE(call);
    run(call);
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<bool, std::uint64_t>>& info) {
  return (std::get<0>(info.param) ? "Growing" : "Fixed") + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Seeds, CudaAllocatorTest, ::testing::Combine(::testing::Bool(), ::testing::Range<std::uint64_t>(1, 3)),
                         NameOf);

}  // namespace
}  // namespace ridgeline::device
