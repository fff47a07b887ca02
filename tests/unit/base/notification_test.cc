#include "server/base/notification.h"

#include <thread>

#include "gtest/gtest.h"

namespace ridgeline::base {
namespace {

TEST(NotificationTest, TimesOutUntilItIsSet) {
  Notification notification;
  EXPECT_FALSE(notification.HasBeenNotified());
  EXPECT_FALSE(notification.WaitWithTimeout(absl::ZeroDuration()));
  EXPECT_FALSE(notification.WaitWithTimeout(absl::Milliseconds(2)));
  notification.Notify();
  EXPECT_TRUE(notification.HasBeenNotified());
  EXPECT_TRUE(notification.WaitWithTimeout(absl::ZeroDuration()));
  notification.Wait();
}

// Under the thread sanitizer this fails if the wait orders nothing.
TEST(NotificationTest, WhatWasWrittenBeforeIsReadAfter) {
  for (int i = 0; i < 100; ++i) {
    Notification notification;
    int value = 0;
    std::thread writer([&] {
      value = i;
      notification.Notify();
    });
    notification.Wait();
    EXPECT_EQ(value, i);
    writer.join();
  }
}

TEST(NotificationDeathTest, IsSetOnce) {
  Notification notification;
  notification.Notify();
  EXPECT_DEATH(notification.Notify(), "notified_");
}

}  // namespace
}  // namespace ridgeline::base
