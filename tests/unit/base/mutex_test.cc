#include "server/base/mutex.h"

#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace ridgeline::base {
namespace {

TEST(CondVarTest, AWaitEndsWithItsTimeout) {
  Mutex mutex;
  CondVar changed;
  MutexLock lock(&mutex);
  const absl::Time start = absl::Now();
  while (changed.WaitWithTimeout(&mutex, absl::Milliseconds(5))) {
  }
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(4));
}

TEST(CondVarTest, ASignalEndsAnEndlessWait) {
  Mutex mutex;
  CondVar changed;
  bool ready = false;
  std::thread signaller([&] {
    MutexLock lock(&mutex);
    ready = true;
    changed.SignalAll();
  });
  {
    MutexLock lock(&mutex);
    while (!ready) changed.WaitWithTimeout(&mutex, absl::InfiniteDuration());
  }
  signaller.join();
  EXPECT_TRUE(ready);
}

TEST(MutexTest, OneHolderAtATime) {
  Mutex mutex;
  int count = 0;
  const auto add = [&] {
    for (int i = 0; i < 10'000; ++i) {
      MutexLock lock(&mutex);
      ++count;
    }
  };
  std::thread other(add);
  add();
  other.join();
  EXPECT_EQ(count, 20'000);
}

}  // namespace
}  // namespace ridgeline::base
