#include "server/device/lane_worker.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::ElementsAre;

class LaneWorkerTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK_AND_ASSIGN(worker_, LaneWorker::Create("lane-test", progress_)); }

  // Queues a completion and waits for its status.
  absl::Status Complete() {
    std::promise<absl::Status> status;
    worker_->QueueCompletion([&status](absl::Status s) { status.set_value(std::move(s)); });
    return status.get_future().get();
  }

  LaneProgress progress_;
  std::unique_ptr<LaneWorker> worker_;
};

TEST_F(LaneWorkerTest, RunsInOrder) {
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) {
    worker_->Queue([&order, i] {
      order.push_back(i);
      return absl::OkStatus();
    });
  }
  EXPECT_OK(Complete());
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[i], i);
}

TEST_F(LaneWorkerTest, EveryCompletionComesOnceAndInOrder) {
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    worker_->QueueCompletion([&order, i](absl::Status status) {
      EXPECT_OK(status);
      order.push_back(i);
    });
  }
  EXPECT_OK(Complete());
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST_F(LaneWorkerTest, WorkAfterAFailureIsSkippedUntilTheCompletion) {
  std::vector<int> ran;
  const auto work = [&ran](int i, absl::Status status) {
    return [&ran, i, status] {
      ran.push_back(i);
      return status;
    };
  };
  worker_->Queue(work(1, absl::OkStatus()));
  worker_->Queue(work(2, absl::DataLossError("first")));
  worker_->Queue(work(3, absl::InternalError("second")));
  worker_->Queue(work(4, absl::OkStatus()));
  EXPECT_THAT(Complete(), StatusIs(absl::StatusCode::kDataLoss, "first"));
  EXPECT_THAT(ran, ElementsAre(1, 2));
  worker_->Queue(work(5, absl::OkStatus()));
  EXPECT_OK(Complete());
  EXPECT_THAT(ran, ElementsAre(1, 2, 5));
}

TEST_F(LaneWorkerTest, WorkIsLetGoOnceItHasRunOrWasSkipped) {
  const auto kept_alive = std::make_shared<int>(0);
  worker_->Queue([kept_alive] { return absl::DataLossError("lost"); });
  worker_->Queue([kept_alive] { return absl::OkStatus(); });
  std::promise<int> owners_at_completion;
  worker_->QueueCompletion([&](absl::Status) { owners_at_completion.set_value(static_cast<int>(kept_alive.use_count())); });
  EXPECT_EQ(owners_at_completion.get_future().get(), 1);
}

TEST_F(LaneWorkerTest, ProgressTellsWhatIsQueuedAndDone) {
  EXPECT_TRUE(progress_.Idle());
  std::atomic<bool> release{false};
  worker_->Queue([&release] {
    while (!release) std::this_thread::yield();
    return absl::OkStatus();
  });
  worker_->Queue([] { return absl::OkStatus(); });
  EXPECT_EQ(progress_.queued, 2);
  EXPECT_FALSE(progress_.Idle());
  EXPECT_TRUE(progress_.HasCompleted(0));
  EXPECT_FALSE(progress_.HasCompleted(1));
  release = true;
  bool idle_at_completion = false;
  std::promise<void> done;
  worker_->QueueCompletion([&](absl::Status) {
    idle_at_completion = progress_.Idle();
    done.set_value();
  });
  done.get_future().wait();
  EXPECT_TRUE(idle_at_completion);
  EXPECT_EQ(progress_.completed, 3);
}

// A worker that took a part of a batch sleeps until the rest is there.
TEST_F(LaneWorkerTest, WorksAfterEveryPause) {
  for (int pause_us : {0, 1, 10, 20, 30, 100, 1000}) {
    for (int i = 0; i < 20; ++i) {
      worker_->Queue([] { return absl::OkStatus(); });
      std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
      EXPECT_OK(Complete());
    }
  }
}

// Whichever thread runs a batch, it is one batch.
TEST_F(LaneWorkerTest, BatchesRunHereOrThereInOrder) {
  std::vector<int> order;
  int num_here = 0;
  for (int i = 0; i < 200; ++i) {
    worker_->Queue([&order, i] {
      order.push_back(i);
      return i % 3 == 0 ? absl::DataLossError("every third fails") : absl::OkStatus();
    });
    worker_->Queue([&order, i] {
      order.push_back(-i);
      return absl::OkStatus();
    });
    std::promise<absl::Status> status;
    const auto done = [&, here = std::this_thread::get_id()](absl::Status s) {
      if (std::this_thread::get_id() == here) ++num_here;
      status.set_value(std::move(s));
    };
    if (i % 2 == 0) {
      worker_->RunOrQueueCompletion(done);
    } else {
      worker_->QueueCompletion(done);
    }
    EXPECT_EQ(status.get_future().get().code(), i % 3 == 0 ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk) << i;
    // A worker that has just run a batch takes a moment to fall asleep.
    if (i % 4 == 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GT(num_here, 0);
  EXPECT_TRUE(progress_.Idle());
  std::vector<int> expected;
  for (int i = 0; i < 200; ++i) {
    expected.push_back(i);
    if (i % 3 != 0) expected.push_back(-i);
  }
  EXPECT_EQ(order, expected);
}

TEST_F(LaneWorkerTest, ABatchBehindAnotherWaitsForIt) {
  std::promise<void> release, done;
  worker_->Queue([released = release.get_future().share()] {
    released.wait();
    return absl::OkStatus();
  });
  std::vector<int> order;
  worker_->QueueCompletion([&order](absl::Status) { order.push_back(1); });
  worker_->RunOrQueueCompletion([&](absl::Status) {
    order.push_back(2);
    done.set_value();
  });
  release.set_value();
  done.get_future().wait();
  EXPECT_THAT(order, ElementsAre(1, 2));
}

TEST_F(LaneWorkerTest, DestructorRunsWhatIsQueued) {
  int num_run = 0;
  absl::Status last = absl::UnknownError("not called");
  for (int i = 0; i < 100; ++i) {
    worker_->Queue([&num_run] {
      ++num_run;
      return absl::OkStatus();
    });
  }
  worker_->QueueCompletion([&last](absl::Status status) { last = std::move(status); });
  worker_.reset();
  EXPECT_EQ(num_run, 100);
  EXPECT_OK(last);
}

TEST_F(LaneWorkerTest, CompletionsMayQueueMore) {
  std::promise<absl::Status> inner;
  worker_->QueueCompletion([this, &inner](absl::Status) {
    worker_->Queue([] { return absl::DataLossError("queued by a completion"); });
    worker_->QueueCompletion([&inner](absl::Status status) { inner.set_value(std::move(status)); });
  });
  EXPECT_THAT(inner.get_future().get(), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace ridgeline::device
