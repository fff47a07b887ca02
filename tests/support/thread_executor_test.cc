#include "tests/support/thread_executor.h"

#include <atomic>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::support {
namespace {

using ::testing::Each;

TEST(ThreadExecutorTest, RunsEachTaskOnceAndReturnsWhenAllAreDone) {
  for (const int num_slots : {1, 2, 5}) {
    ThreadExecutor executor(num_slots);
    EXPECT_EQ(executor.num_slots(), num_slots);
    for (const std::int64_t num_tasks : {0, 1, 3, 1000}) {
      std::vector<int> runs(num_tasks);
      executor.ParallelFor(num_tasks, [&](std::int64_t task_idx, int) { ++runs[task_idx]; });
      EXPECT_THAT(runs, Each(1));
    }
  }
}

TEST(ThreadExecutorTest, TasksThatRunAtOnceHaveSlotsOfTheirOwn) {
  ThreadExecutor executor(4);
  std::vector<std::atomic<int>> running(4);
  std::atomic<int> clashes{0};
  executor.ParallelFor(2000, [&](std::int64_t, int slot) {
    if (++running[slot] != 1) ++clashes;
    --running[slot];
  });
  EXPECT_EQ(clashes, 0);
}

TEST(ThreadExecutorTest, StartsNothingOnceCancelled) {
  ThreadExecutor executor(2);
  executor.CancelAfter(0);
  EXPECT_TRUE(executor.cancelled());
  executor.ParallelFor(10, [](std::int64_t, int) { FAIL() << "started after it was cancelled"; });
  EXPECT_EQ(executor.tasks_started(), 0);
}

TEST(ThreadExecutorTest, CancelsInTheMiddle) {
  ThreadExecutor executor(1);
  executor.CancelAfter(3);
  executor.ParallelFor(10, [](std::int64_t, int) {});
  EXPECT_EQ(executor.tasks_started(), 3);
}

}  // namespace
}  // namespace ridgeline::support
