// Random traces over lanes against a plain model, over a source that counts and fails.
#include <cstdint>
#include <random>
#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "server/device/caching_allocator.h"
#include "tests/unit/device/allocator_model.h"
#include "tests/unit/device/fake_memory.h"

namespace ridgeline::device {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kLimitBytes = 1024 * kMiB;

// What is under test, over a source with nothing behind it.
struct Subject {
  explicit Subject(bool grows, const AllocatorOptions& options = {}, bool has_addresses = true)
      : memory(grows),
        allocator(memory, kLimitBytes, lanes, options),
        model(allocator, lanes,
              {.mapped_bytes = [this] { return memory.mapped_bytes(); },
               .is_mapped = [this](const char* data, std::int64_t bytes) { return memory.IsMapped(data, bytes); }},
              grows && has_addresses && options.rounding_divisions == 0) {}

  AllocatorModel::Lanes lanes;
  FakeMemory memory;
  CachingAllocator allocator;
  AllocatorModel model;
};

class AllocatorModelTest : public ::testing::TestWithParam<std::tuple<bool, std::uint64_t>> {
 protected:
  bool grows() const { return std::get<0>(GetParam()); }
  std::uint64_t seed() const { return std::get<1>(GetParam()); }
};

TEST_P(AllocatorModelTest, RandomTraces) {
  Subject subject(grows());
  std::mt19937_64 random(seed());
  for (int step = 0; step < 3000; ++step) {
    SCOPED_TRACE(step);
    subject.model.TakeRandomStep(random, kLimitBytes);
    subject.model.Check();
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(subject.model.num_refusals(), 0) << "the limit was never reached";
  subject.model.CheckEnd();
}

TEST_P(AllocatorModelTest, RandomTracesWithOptions) {
  const std::int64_t max_split_bytes = seed() % 2 == 0 ? 32 * kMiB : 64 * kMiB;
  Subject subject(grows(), {.rounding_divisions = 1 << (seed() % 4), .max_split_bytes = max_split_bytes});
  std::mt19937_64 random(seed());
  for (int step = 0; step < 1500; ++step) {
    SCOPED_TRACE(step);
    subject.model.TakeRandomStep(random, kLimitBytes);
    subject.model.Check();
    ASSERT_FALSE(HasFailure());
  }
  subject.model.CheckEnd();
}

// The same trace again and again, and each time another call to the device fails: that one alone, or a few.
TEST_P(AllocatorModelTest, EveryCallToTheDeviceFails) {
  constexpr int kSteps = 120;
  const auto run = [this](std::int64_t failing_call, std::int64_t num_failures) {
    Subject subject(grows(), {}, /*has_addresses=*/false);
    subject.memory.FailCalls(failing_call, num_failures);
    std::mt19937_64 random(seed());
    for (int step = 0; step < kSteps && !HasFailure(); ++step) {
      SCOPED_TRACE(step);
      subject.model.TakeRandomStep(random, kLimitBytes);
      subject.model.Check();
    }
    subject.model.CheckEnd();
    return subject.memory.num_calls();
  };
  const std::int64_t num_calls = run(0, 0);
  ASSERT_GT(num_calls, 3);
  for (std::int64_t call = 0; call < num_calls && !HasFailure(); ++call) {
    SCOPED_TRACE(call);
    run(call, 1);
    run(call, 5);
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<bool, std::uint64_t>>& info) {
  return (std::get<0>(info.param) ? "Growing" : "Fixed") + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Seeds, AllocatorModelTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Range<std::uint64_t>(1, 9)), NameOf);

}  // namespace
}  // namespace ridgeline::device
