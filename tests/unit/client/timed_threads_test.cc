#include "client/cli/timed_threads.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::cli {
namespace {

using ::testing::ElementsAre;
using Clock = TimedThreads::Clock;

TEST(TimedThreadsTest, TheEarliestGoesFirstAndNoneBeforeItsTime) {
  std::vector<int> order;
  std::vector<bool> early;
  absl::BlockingCounter left(4);
  TimedThreads threads(1);
  const Clock::time_point now = Clock::now();
  const auto post = [&](int number, Clock::time_point time) {
    threads.PostAt(time, [&, number, time] {
      order.push_back(number);
      early.push_back(Clock::now() < time);
      left.DecrementCount();
    });
  };
  post(3, now + std::chrono::milliseconds(60));
  post(1, now + std::chrono::milliseconds(20));
  post(2, now + std::chrono::milliseconds(40));
  post(0, now);
  left.Wait();
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(early, ElementsAre(false, false, false, false));
}

TEST(TimedThreadsTest, AllThreadsWorkAtOnce) {
  constexpr int kThreads = 4;
  absl::BlockingCounter left(kThreads);
  auto* const barrier = new absl::Barrier(kThreads);
  TimedThreads threads(kThreads);
  ASSERT_EQ(threads.num_threads(), kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.Post([&] {
      if (barrier->Block()) delete barrier;  // returns only when all are there
      left.DecrementCount();
    });
  }
  left.Wait();
}

TEST(TimedThreadsTest, InAHurryNothingWaits) {
  absl::Notification first, second;
  TimedThreads threads(1);
  threads.PostAt(Clock::now() + std::chrono::hours(1), [&] { first.Notify(); });
  threads.Hurry();
  first.WaitForNotification();
  threads.PostAt(Clock::now() + std::chrono::hours(1), [&] { second.Notify(); });
  second.WaitForNotification();
}

TEST(TimedThreadsTest, WhatHasNotBegunIsDropped) {
  const auto held = std::make_shared<int>(1);
  std::atomic<bool> ran = false;
  {
    TimedThreads threads(2);
    threads.PostAt(Clock::now() + std::chrono::hours(1), [&ran, held] { ran = true; });
  }
  EXPECT_FALSE(ran);
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace ridgeline::cli
