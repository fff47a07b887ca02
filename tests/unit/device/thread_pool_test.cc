#include "server/device/thread_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::device {
namespace {

std::unique_ptr<ThreadPool> MakePool(int num_threads) {
  absl::StatusOr<std::unique_ptr<ThreadPool>> pool = ThreadPool::Create(num_threads);
  EXPECT_OK(pool);
  return *std::move(pool);
}

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, EveryTaskRunsOnce) {
  const auto pool = MakePool(GetParam());
  for (const std::int64_t num_tasks : {0, 1, 2, 3, 7, 1000}) {
    std::vector<std::atomic<int>> runs(num_tasks);
    pool->ParallelFor(
        num_tasks, [&runs](std::int64_t task_idx, int) { ++runs[task_idx]; }, nullptr);
    for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
  }
}

TEST_P(ThreadPoolTest, RunningTasksHaveSlotsOfTheirOwn) {
  const auto pool = MakePool(GetParam());
  std::vector<std::atomic<bool>> busy(GetParam());
  pool->ParallelFor(
      5000,
      [&busy](std::int64_t, int slot) {
        ASSERT_GE(slot, 0);
        ASSERT_LT(slot, static_cast<int>(busy.size()));
        EXPECT_FALSE(busy[slot].exchange(true));
        busy[slot] = false;
      },
      nullptr);
}

// What the tasks wrote is visible to the caller: checked by the thread sanitizer.
TEST_P(ThreadPoolTest, ResultsAreVisibleAfterwards) {
  const auto pool = MakePool(GetParam());
  std::vector<std::int64_t> squares(10000);
  for (int round = 0; round < 20; ++round) {
    pool->ParallelFor(
        static_cast<std::int64_t>(squares.size()), [&](std::int64_t i, int) { squares[i] = i * i + round; }, nullptr);
    for (std::size_t i = 0; i < squares.size(); ++i) ASSERT_EQ(squares[i], static_cast<std::int64_t>(i * i) + round);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST(ThreadPool, OneTaskRunsOnTheCaller) {
  const auto pool = MakePool(4);
  std::thread::id ran_on;
  pool->ParallelFor(
      1,
      [&ran_on](std::int64_t, int slot) {
        ran_on = std::this_thread::get_id();
        EXPECT_EQ(slot, 0);
      },
      nullptr);
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

// Tasks that wait for each other end only if that many threads run them at once.
TEST(ThreadPool, AllThreadsTakePart) {
  constexpr int kThreads = 6;
  const auto pool = MakePool(kThreads);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that all helpers sleep
  std::atomic<int> num_arrived{0};
  pool->ParallelFor(
      kThreads,
      [&num_arrived](std::int64_t, int) {
        ++num_arrived;
        while (num_arrived < kThreads) std::this_thread::yield();
      },
      nullptr);
  EXPECT_EQ(num_arrived, kThreads);
}

TEST(ThreadPool, SeveralCallersAtTheSameTime) {
  constexpr int kCallers = 4;
  const auto pool = MakePool(3);
  std::atomic<std::int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        std::vector<std::int64_t> values(64);
        pool->ParallelFor(
            64, [&values](std::int64_t i, int) { values[i] = i; }, nullptr);
        for (const std::int64_t value : values) sum += value;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, kCallers * 200 * (63 * 64 / 2));
}

// A caller whose helpers are busy elsewhere does its work alone.
TEST(ThreadPool, CallersDoNotWaitForEachOther) {
  const auto pool = MakePool(2);
  std::atomic<int> num_started{0};
  std::atomic<bool> release{false};
  std::thread busy_caller([&] {
    pool->ParallelFor(
        2,
        [&](std::int64_t, int) {
          ++num_started;
          while (!release) std::this_thread::yield();
        },
        nullptr);
  });
  while (num_started < 2) std::this_thread::yield();
  std::atomic<int> runs{0};
  pool->ParallelFor(
      100, [&runs](std::int64_t, int) { ++runs; }, nullptr);
  EXPECT_EQ(runs, 100);
  release = true;
  busy_caller.join();
}

TEST(ThreadPool, TasksStartInOrder) {
  const auto pool = MakePool(4);
  std::vector<std::int64_t> last_of_slot(4, -1);
  pool->ParallelFor(
      2000,
      [&last_of_slot](std::int64_t task_idx, int slot) {
        EXPECT_GT(task_idx, last_of_slot[slot]);
        last_of_slot[slot] = task_idx;
      },
      nullptr);
}

TEST(ThreadPool, NoTaskStartsOnceCancelled) {
  constexpr std::int64_t kTasks = 100'000'000;
  for (const int num_threads : {1, 3}) {
    const auto pool = MakePool(num_threads);
    std::atomic<bool> cancelled{false};
    std::atomic<int> num_started{0};
    pool->ParallelFor(
        kTasks,
        [&](std::int64_t, int) {
          if (++num_started == 10) cancelled = true;
        },
        &cancelled);
    EXPECT_GE(num_started, 10);
    EXPECT_LT(num_started, kTasks);
    num_started = 0;
    pool->ParallelFor(
        100, [&](std::int64_t, int) { ++num_started; }, &cancelled);
    EXPECT_EQ(num_started, 0);
  }
}

TEST(ThreadPoolDeathTest, RefusedThreadsAreAStatus) {
#ifdef RIDGELINE_SANITIZED
  GTEST_SKIP() << "sanitizers need the address space that this test takes away";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto create_with_little_memory = [] {
    const rlimit limit = {.rlim_cur = rlim_t{256} << 20, .rlim_max = rlim_t{256} << 20};  // stacks of about 8 MiB each
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
    const absl::Status status = ThreadPool::Create(4096).status();
    std::cerr << status << std::endl;
    _exit(status.code() == absl::StatusCode::kResourceExhausted ? 0 : 1);
  };
  EXPECT_EXIT(create_with_little_memory(), ::testing::ExitedWithCode(0), "cannot start thread kernel-[0-9]+");
}

TEST(LaneExecutor, CarriesTheToken) {
  const auto pool = MakePool(3);
  const CancelToken cancel = std::make_shared<std::atomic<bool>>(false);
  LaneExecutor executor(*pool, cancel);
  EXPECT_EQ(executor.num_slots(), 3);
  EXPECT_FALSE(executor.cancelled());
  *cancel = true;
  EXPECT_TRUE(executor.cancelled());
  executor.ParallelFor(10, [](std::int64_t, int) { ADD_FAILURE() << "ran although cancelled"; });
  EXPECT_FALSE(LaneExecutor(*pool).cancelled());
}

}  // namespace
}  // namespace ridgeline::device
