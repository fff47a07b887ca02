#include "server/engine/batch_former.h"

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/engine/made_up_work.h"

namespace ridgeline::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

class BatchFormerTest : public ::testing::Test {
 protected:
  void Build(const BatchLimits& limits, int num_lanes = 4) { former_ = std::make_unique<BatchFormer>(limits, num_lanes); }

  std::shared_ptr<Task> Push(WorkTraits traits) {
    std::shared_ptr<Task> task = MakeTask(std::move(traits));
    former_->Push(task, next_ticket_++);
    return task;
  }
  // A step of a decode loop.
  std::shared_ptr<Task> Decode(const std::string& client, const std::string& key = "decode") {
    return Push({.client = client, .size = WorkSize::kDecode, .batch_key = key});
  }
  std::shared_ptr<Task> Prefill(const std::string& client, std::int64_t tokens = 1000) {
    return Push({.client = client, .size = WorkSize::kPrefill, .tokens = tokens});
  }

  // The clients of the next launch, which leaves.
  std::vector<std::string> Leave() {
    const BatchFormer::Tasks tasks = former_->Form(kNow).tasks;
    if (!tasks.empty()) running_.push_back(former_->Leave(tasks));
    std::vector<std::string> clients;
    for (const auto& task : tasks) clients.push_back(task->traits.client);
    return clients;
  }
  // The launch that left first has ended.
  void Return() {
    former_->Return(running_.front());
    running_.erase(running_.begin());
  }

  std::unique_ptr<BatchFormer> former_;
  std::vector<BatchFormer::Claim> running_;
  std::uint64_t next_ticket_ = 0;
};

// ---- Who shares a launch ----------------------------------------------------------------------------------------------------

TEST_F(BatchFormerTest, WorksOfOneKeyLeaveTogether) {
  Build({});
  Decode("a");
  Decode("b", "other");
  Decode("c");
  EXPECT_THAT(Leave(), ElementsAre("a", "c"));
  EXPECT_THAT(Leave(), ElementsAre("b"));
  EXPECT_THAT(Leave(), IsEmpty());
  EXPECT_TRUE(former_->empty());
}

TEST_F(BatchFormerTest, WithoutAKeyEachLeavesAlone) {
  Build({});
  Decode("a", "");
  Decode("b", "");
  EXPECT_THAT(Leave(), ElementsAre("a"));
  EXPECT_THAT(Leave(), ElementsAre("b"));
}

TEST_F(BatchFormerTest, ALaunchHasAtMostSoManyRequests) {
  Build({.max_requests = 2});
  for (const char* client : {"a", "b", "c"}) Decode(client);
  EXPECT_THAT(Leave(), ElementsAre("a", "b"));
  Return();
  EXPECT_THAT(Leave(), ElementsAre("c"));
}

TEST_F(BatchFormerTest, ALaunchHasAtMostSoManyTokensButOneAlwaysLeaves) {
  Build({.max_tokens = 100});
  const auto chunk = [&](const char* client, std::int64_t tokens) {
    Push({.client = client, .size = WorkSize::kPrefill, .tokens = tokens, .batch_key = "chunk"});
  };
  chunk("a", 60);
  chunk("b", 50);
  chunk("c", 40);
  chunk("d", 1000);
  EXPECT_THAT(Leave(), ElementsAre("a", "c"));
  EXPECT_THAT(Leave(), ElementsAre("b"));
  EXPECT_THAT(Leave(), ElementsAre("d"));
}

TEST_F(BatchFormerTest, WhatMustLeaveAloneDoes) {
  Build({});
  Decode("a")->leaves_alone = true;
  Decode("b");
  Decode("c");
  EXPECT_THAT(Leave(), ElementsAre("a"));
  EXPECT_THAT(Leave(), ElementsAre("b", "c"));
}

TEST_F(BatchFormerTest, WhoWaitsForOthersBlocksNobody) {
  Build({});
  const auto behind = Decode("behind");
  behind->num_ahead = 1;
  const auto refused = Decode("refused");
  refused->refused_at = former_->num_releases();
  Decode("ready");
  EXPECT_THAT(Leave(), ElementsAre("ready"));
  Return();
  EXPECT_THAT(Leave(), IsEmpty());
  former_->NoteRelease();
  EXPECT_THAT(Leave(), ElementsAre("refused"));
  Return();
  behind->num_ahead = 0;
  EXPECT_THAT(Leave(), ElementsAre("behind"));
}

TEST_F(BatchFormerTest, TheExpiredAndTheRemovedAreNotInTheBatch) {
  Build({});
  Decode("a");
  Push({.client = "late", .deadline = kNow, .size = WorkSize::kDecode, .batch_key = "decode"});
  const auto removed = Decode("removed");
  Decode("d");
  EXPECT_TRUE(former_->Remove(*removed));
  EXPECT_FALSE(former_->Remove(*removed));
  const BatchFormer::Departure departure = former_->Form(kNow);
  EXPECT_THAT(departure.tasks, SizeIs(2));
  ASSERT_THAT(departure.expired, SizeIs(1));
  EXPECT_EQ(departure.expired[0]->traits.client, "late");
  EXPECT_TRUE(former_->empty());
}

TEST_F(BatchFormerTest, AFullLaunchHasClientsTakeTurns) {
  Build({.max_requests = 4});
  for (int i = 0; i < 1000; ++i) Decode("a");
  Decode("b");
  Decode("c");
  EXPECT_THAT(Leave(), ElementsAre("a", "b", "c", "a"));
}

// ---- Decode collects --------------------------------------------------------------------------------------------------------

TEST_F(BatchFormerTest, ASecondDecodeLaunchIsAtLeastHalfAsLargeAsTheOneThatRuns) {
  Build({});
  for (const char* client : {"a", "b", "c", "A", "B"}) Decode(client);
  EXPECT_THAT(Leave(), SizeIs(5));
  Decode("d");
  Decode("e");
  EXPECT_THAT(Leave(), IsEmpty()) << "two collect while five run";
  Decode("f");
  EXPECT_THAT(Leave(), ElementsAre("d", "e", "f"));
  for (const char* client : {"g", "h", "i", "j"}) Decode(client);
  EXPECT_THAT(Leave(), IsEmpty()) << "two launches run, which is the limit";
  Return();
  EXPECT_THAT(Leave(), SizeIs(4));
}

TEST_F(BatchFormerTest, WhenNothingOfTheKeyRunsAStepLeavesAtOnce) {
  Build({});
  for (const char* client : {"a", "b", "c"}) Decode(client);
  Leave();
  Decode("d");
  EXPECT_THAT(Leave(), IsEmpty());
  Return();
  EXPECT_THAT(Leave(), ElementsAre("d"));
}

TEST_F(BatchFormerTest, AFullLaunchDoesNotWaitToBeLarger) {
  Build({.max_requests = 2});
  for (int i = 0; i < 2; ++i) Push({.size = WorkSize::kDecode, .tokens = 8, .batch_key = "decode"});
  EXPECT_THAT(Leave(), SizeIs(2));
  for (int i = 0; i < 3; ++i) Push({.size = WorkSize::kDecode, .tokens = 1, .batch_key = "decode"});
  EXPECT_THAT(Leave(), SizeIs(2));
}

TEST_F(BatchFormerTest, KeysThatCollectDoNotHoldOthersBack) {
  Build({.max_decode_launches_per_key = 1});
  Decode("a");
  Leave();
  Decode("b");
  Decode("c", "other");
  EXPECT_THAT(Leave(), ElementsAre("c"));
  EXPECT_THAT(Leave(), IsEmpty());
}

// Closed loops: of what has ended all come again. From one step at a time the batches grow until two launches run and a third
// collects.
TEST_F(BatchFormerTest, ManyDecodeLoopsEndUpInFewLaunches) {
  Build({});
  constexpr int kClients = 128;
  std::vector<std::vector<std::string>> on_lanes;
  const auto leave = [&] {
    std::vector<std::string> clients = Leave();
    if (!clients.empty()) on_lanes.push_back(std::move(clients));
  };
  for (int i = 0; i < kClients; ++i) {
    Decode(absl::StrCat(i));
    leave();
  }
  std::size_t largest = 0;
  for (int step = 0; step < 20; ++step) {
    const std::vector<std::string> ended = on_lanes.front();
    on_lanes.erase(on_lanes.begin());
    Return();
    leave();
    for (const std::string& client : ended) {
      Decode(client);
      leave();
    }
    largest = std::max(largest, ended.size());
  }
  EXPECT_GE(largest, kClients / 3u);
}

// ---- Decode and prefill -----------------------------------------------------------------------------------------------------

TEST_F(BatchFormerTest, WhileStepsCollectNobodyNeedLookForALaunch) {
  Build({.max_decode_launches_per_key = 2});
  const auto may_leave = [this](const char* client) { return former_->MayLetOneLeave(*Decode(client)); };
  EXPECT_TRUE(may_leave("a"));
  Decode("b");
  Decode("c");
  EXPECT_THAT(Leave(), ElementsAre("a", "b", "c"));
  EXPECT_FALSE(may_leave("a")) << "less than half of the launch that runs";
  EXPECT_TRUE(may_leave("b"));
  EXPECT_THAT(Leave(), ElementsAre("a", "b"));
  for (const char* client : {"a", "b", "c"}) EXPECT_FALSE(may_leave(client)) << "two launches run";
  Return();
  EXPECT_TRUE(may_leave("d"));
}

// Where MayLetOneLeave says no, none does.
TEST_F(BatchFormerTest, WhoIsNotLookedForWouldNotLeave) {
  std::mt19937 random(1);
  const auto draw = [&random](int n) { return static_cast<int>(random() % n); };
  int num_refused = 0;
  for (int run = 0; run < 50; ++run) {
    Build({.max_requests = 1 + draw(6), .max_tokens = 1 + draw(12), .max_decode_launches_per_key = 1 + draw(3)}, 1 + draw(4));
    running_.clear();
    for (int step = 0; step < 200; ++step) {
      const auto task = Push({.client = absl::StrCat("client ", draw(3)),
                              .deadline = draw(10) == 0 ? kNow : absl::InfiniteFuture(),
                              .size = draw(4) == 0 ? WorkSize::kPrefill : WorkSize::kDecode,
                              .tokens = 1 + draw(4),
                              .batch_key = draw(8) == 0 ? "" : absl::StrCat("key ", draw(3))});
      if (!former_->MayLetOneLeave(*task)) {
        ++num_refused;
        ASSERT_THAT(Leave(), IsEmpty()) << "run " << run << ", step " << step;
      }
      while (!Leave().empty()) {
      }
      if (draw(5) == 0) former_->Remove(*task);
      if (draw(2) == 0 && !running_.empty()) Return();
      while (!Leave().empty()) {
      }
    }
  }
  EXPECT_GT(num_refused, 1000);
}

TEST_F(BatchFormerTest, DecodeGoesFirst) {
  Build({});
  Prefill("prefill");
  Decode("decode");
  EXPECT_THAT(Leave(), ElementsAre("decode"));
  EXPECT_THAT(Leave(), ElementsAre("prefill"));
}

TEST_F(BatchFormerTest, DecodeDoesNotStarvePrefill) {
  Build({.max_decode_launches_in_a_row = 3}, /*num_lanes=*/1);
  Prefill("prefill");
  for (int i = 0; i < 3; ++i) {
    Decode("decode");
    ASSERT_THAT(Leave(), ElementsAre("decode"));
    Return();
  }
  Decode("decode");
  EXPECT_THAT(Leave(), ElementsAre("prefill"));
  Return();
  EXPECT_THAT(Leave(), ElementsAre("decode"));
}

TEST_F(BatchFormerTest, LaunchesBeforeAPrefillCameDoNotCount) {
  Build({.max_decode_launches_in_a_row = 2}, /*num_lanes=*/1);
  for (int i = 0; i < 5; ++i) {
    Decode("decode");
    Leave();
    Return();
  }
  Prefill("prefill");
  Decode("decode");
  EXPECT_THAT(Leave(), ElementsAre("decode"));
}

TEST_F(BatchFormerTest, WhileDecodeWaitsPrefillLeavesItALane) {
  Build({.max_decode_launches_per_key = 1}, /*num_lanes=*/3);
  for (int i = 0; i < 4; ++i) Prefill("prefill");
  Decode("decode");
  ASSERT_THAT(Leave(), ElementsAre("decode"));
  Decode("collects");
  EXPECT_THAT(Leave(), ElementsAre("prefill"));
  EXPECT_THAT(Leave(), ElementsAre("prefill"));
  EXPECT_THAT(Leave(), IsEmpty()) << "two of three lanes";
  Return();
  EXPECT_THAT(Leave(), ElementsAre("collects"));
  EXPECT_THAT(Leave(), ElementsAre("prefill")) << "no decode waits";
}

TEST_F(BatchFormerTest, ASingleLaneIsForBoth) {
  Build({.max_decode_launches_in_a_row = 1}, /*num_lanes=*/1);
  std::map<std::string, int> served;
  for (int i = 0; i < 100; ++i) {
    Decode("decode");
    Prefill("prefill");
    for (const std::string& client : Leave()) ++served[client];
    Return();
  }
  EXPECT_EQ(served["prefill"], 50);
  EXPECT_GE(served["decode"], 50);
}

}  // namespace
}  // namespace ridgeline::engine
