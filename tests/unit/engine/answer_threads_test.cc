#include "server/engine/answer_threads.h"

#include <atomic>
#include <memory>
#include <thread>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/base/notification.h"

namespace ridgeline::engine {
namespace {

TEST(AnswerThreadsTest, AnswersDoNotWaitForEachOther) {
  AnswerThreads threads(2);
  ASSERT_EQ(threads.size(), 2);
  base::Notification second, first_has_seen_it;
  threads.Post([&] {
    if (second.WaitWithTimeout(absl::Minutes(1))) first_has_seen_it.Notify();
  });
  threads.Post([&] { second.Notify(); });
  EXPECT_TRUE(first_has_seen_it.WaitWithTimeout(absl::Minutes(1)));
}

TEST(AnswerThreadsTest, WhatWasPostedRunsBeforeTheyGo) {
  std::atomic<int> answered{0};
  {
    AnswerThreads threads(3);
    for (int i = 0; i < 100; ++i) threads.Post([&] { ++answered; });
  }
  EXPECT_EQ(answered, 100);
}

TEST(AnswerThreadsTest, WithoutThreadsThePosterAnswers) {
  AnswerThreads threads(0);
  std::thread::id answered_by;
  threads.Post([&] { answered_by = std::this_thread::get_id(); });
  EXPECT_EQ(answered_by, std::this_thread::get_id());
}

}  // namespace
}  // namespace ridgeline::engine
