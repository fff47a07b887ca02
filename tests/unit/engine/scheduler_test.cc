// The scheduler with works that compute nothing: who shares a launch, and how each member's part in it ends.
#include "server/engine/scheduler.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "server/base/metrics.h"
#include "server/engine/answer_threads.h"
#include "tests/support/fake_clock.h"
#include "tests/support/flaky_device.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/made_up_work.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine {
namespace {

using support::IsOk;
using support::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

absl::Status OutOfMemory() {
  return base::WithReason(absl::ResourceExhaustedError("the test says so"), base::kReasonOutOfMemory);
}

class SchedulerTest : public ::testing::Test {
 protected:
  void Build(int num_lanes, const BatchLimits& limits = {}) {
    device_ = std::make_unique<support::FlakyDevice>(MakeDevice(num_lanes));
    scheduler_ = std::make_shared<Scheduler>(
        SchedulerOptions{.batches = limits}, *device_, clock_,
        SchedulerMetrics{registry_.AddHistogram("wait", "", {1}), registry_.AddHistogram("batch", "", {1}),
                         registry_.AddCounter("lane_busy", "")},
        answer_threads_, trace_);
  }
  ~SchedulerTest() override {
    for (int lane = 0; lane < device_->num_lanes(); ++lane) device_->ReleaseCompletions(lane);
    scheduler_->Drain(absl::InfiniteDuration());
  }

  std::shared_ptr<Call> Submit(Fate& fate, WorkTraits traits) {
    traits.device_bytes = 1;
    return scheduler_->Submit(std::make_unique<MadeUpWork>(fate, record_), std::move(traits), clock_.Now());
  }
  std::shared_ptr<Call> SubmitDecode(Fate& fate) { return Submit(fate, {.size = WorkSize::kDecode, .batch_key = "decode"}); }

  // Occupies a lane with work that shares its launch with nobody.
  void Occupy(Fate& fate, int lane = 0) {
    device_->HoldCompletions(lane);
    Submit(fate, {});
    device_->AwaitHeldCompletion(lane);
  }

  support::FakeClock clock_;
  base::MetricsRegistry registry_;
  AnswerThreads answer_threads_{2};
  TraceRecorder trace_;
  WorkRecord record_;
  std::unique_ptr<support::FlakyDevice> device_;
  std::shared_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, ALaunchThatTakesLongByItsSizeIsBusyNotDead) {
  Build(1);
  Fate long_one("long"), waiting("waiting");
  device_->HoldCompletions(0);
  Submit(long_one, {.roof_time = absl::Minutes(1)});
  device_->AwaitHeldCompletion(0);
  Submit(waiting, {});
  clock_.Advance(absl::Minutes(50));
  EXPECT_THAT(scheduler_->health(), IsOk()) << "a slow kernel takes many times what the device's peaks allow";
  EXPECT_EQ(scheduler_->load().silence, absl::Minutes(50));
  clock_.Advance(absl::Minutes(2));
  EXPECT_THAT(scheduler_->health(), StatusIs(absl::StatusCode::kUnavailable)) << "but none takes for ever";
  device_->ReleaseCompletions(0);
  for (Fate* fate : {&long_one, &waiting}) EXPECT_THAT(fate->Wait(), IsOk());
  scheduler_->Drain(absl::InfiniteDuration());
  EXPECT_THAT(scheduler_->health(), IsOk());
  EXPECT_EQ(scheduler_->load().silence, absl::ZeroDuration());
}

TEST_F(SchedulerTest, LanesAreCountedBusyForAsLongAsLaunchesHaveThem) {
  Build(2);
  Fate first("first"), second("second");
  Occupy(first, 0);
  Occupy(second, 1);
  clock_.Advance(absl::Seconds(3));
  for (const int lane : {0, 1}) device_->ReleaseCompletions(lane);
  for (Fate* fate : {&first, &second}) EXPECT_THAT(fate->Wait(), IsOk());
  scheduler_->Drain(absl::InfiniteDuration());
  EXPECT_THAT(registry_.Serialize(), HasSubstr("\nlane_busy 6\n"));
}

TEST_F(SchedulerTest, WhatCollectedWhileTheLaneWasBusyLeavesTogether) {
  Build(1);
  Fate occupant("occupant"), a("a"), b("b"), c("c");
  Occupy(occupant);
  SubmitDecode(a);
  SubmitDecode(b);
  SubmitDecode(c);
  EXPECT_EQ(scheduler_->load().queued_requests, 3);
  device_->ReleaseCompletions(0);
  for (Fate* fate : {&a, &b, &c}) EXPECT_THAT(fate->Wait(), IsOk());
  EXPECT_THAT(record_.launches(), ElementsAre(ElementsAre("occupant"), ElementsAre("a", "b", "c")));
  EXPECT_THAT(a.outcomes, ElementsAre(absl::OkStatus()));
}

TEST_F(SchedulerTest, LoadCountsRequestsAndLanesApart) {
  Build(2);
  Fate occupant("occupant"), a("a"), b("b"), waiting("waiting");
  Occupy(occupant);
  Submit(a, {.size = WorkSize::kDecode, .batch_key = "decode", .accesses = {{1, true}}});
  EXPECT_THAT(a.Wait(), IsOk());
  device_->HoldCompletions(1);
  Submit(b, {.accesses = {{1, true}}});
  Submit(waiting, {.accesses = {{1, true}}});
  const Load load = scheduler_->load();
  EXPECT_EQ(load.lanes, 2);
  EXPECT_EQ(load.busy_lanes, 2);
  EXPECT_EQ(load.running_requests, 2);
  EXPECT_EQ(load.queued_requests, 1);
  EXPECT_EQ(load.admitted_bytes, 3);
  for (const int lane : {0, 1}) device_->ReleaseCompletions(lane);
  for (Fate* fate : {&occupant, &b, &waiting}) EXPECT_THAT(fate->Wait(), IsOk());
}

TEST_F(SchedulerTest, CancelledAndExpiredMembersLeaveBeforeTheBatchGoes) {
  Build(1);
  Fate occupant("occupant"), a("a"), cancelled("cancelled"), late("late");
  Occupy(occupant);
  SubmitDecode(a);
  const std::shared_ptr<Call> call = SubmitDecode(cancelled);
  Submit(late, {.deadline = clock_.Now() + absl::Seconds(1), .size = WorkSize::kDecode, .batch_key = "decode"});
  call->Cancel();
  ASSERT_TRUE(cancelled.finished.HasBeenNotified());
  EXPECT_EQ(cancelled.num_drops, 1);
  EXPECT_EQ(scheduler_->load().admitted_bytes, 3);
  clock_.Advance(absl::Seconds(2));
  device_->ReleaseCompletions(0);
  EXPECT_THAT(a.Wait(), IsOk());
  EXPECT_THAT(late.Wait(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(cancelled.status, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(record_.launches(), ElementsAre(ElementsAre("occupant"), ElementsAre("a")));
  EXPECT_EQ(late.num_begins, 0);
}

TEST_F(SchedulerTest, ARefusedMemberLeavesTheOthersAlone) {
  Build(1);
  Fate occupant("occupant"), a("a"), refused("refused"), c("c");
  refused.begin = [] { return absl::ResourceExhaustedError("no pages"); };
  Occupy(occupant);
  for (Fate* fate : {&a, &refused, &c}) SubmitDecode(*fate);
  device_->ReleaseCompletions(0);
  EXPECT_THAT(a.Wait(), IsOk());
  EXPECT_THAT(c.Wait(), IsOk());
  EXPECT_THAT(refused.Wait(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(record_.launches(), ElementsAre(ElementsAre("occupant"), ElementsAre("a", "c")));
  EXPECT_EQ(refused.num_drops, 1);
  EXPECT_THAT(refused.outcomes, IsEmpty());
}

TEST_F(SchedulerTest, WhenAllAreRefusedTheLaneIsFree) {
  Build(1);
  Fate refused("refused"), next("next");
  refused.begin = [] { return absl::NotFoundError("gone"); };
  SubmitDecode(refused);
  EXPECT_THAT(refused.Wait(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(scheduler_->load().busy_lanes, 0);
  SubmitDecode(next);
  EXPECT_THAT(next.Wait(), IsOk());
}

TEST_F(SchedulerTest, OneToldNotNowIsAskedAgainWhenALaunchHasEnded) {
  Build(2);
  Fate occupant("occupant"), busy("busy"), other("other");
  std::atomic<bool> may_go = false;
  busy.begin = [&] { return may_go ? Turn::kGo : Turn::kNotNow; };
  Occupy(occupant);
  SubmitDecode(busy);
  EXPECT_EQ(busy.num_begins, 1);
  EXPECT_EQ(scheduler_->load().queued_requests, 1);
  Submit(other, {.batch_key = "other"});
  EXPECT_THAT(other.Wait(), IsOk()) << "it blocks nobody";
  may_go = true;
  device_->ReleaseCompletions(0);
  EXPECT_THAT(busy.Wait(), IsOk());
}

TEST_F(SchedulerTest, WritersOfOneThingComeOneAfterTheOther) {
  Build(4);
  Fate first("first"), second("second"), reader("reader"), unrelated("unrelated");
  device_->HoldCompletions(0);
  const auto access = [](std::uint64_t what, bool writes) {
    return WorkTraits{.size = WorkSize::kDecode, .accesses = {{what, writes}}};
  };
  Submit(first, access(1, true));
  Submit(second, access(1, true));
  Submit(reader, access(1, false));
  Submit(unrelated, access(2, true));
  EXPECT_THAT(unrelated.Wait(), IsOk());
  EXPECT_EQ(second.num_begins, 0);
  device_->ReleaseCompletions(0);
  EXPECT_THAT(reader.Wait(), IsOk());
  EXPECT_THAT(record_.launches(),
              ElementsAre(ElementsAre("first"), ElementsAre("unrelated"), ElementsAre("second"), ElementsAre("reader")));
}

TEST_F(SchedulerTest, OneCancelledInTheMiddleOfTheOrderHoldsNobodyBack) {
  Build(2);
  Fate first("first"), second("second"), third("third");
  device_->HoldCompletions(0);
  Submit(first, {.accesses = {{1, true}}});
  const std::shared_ptr<Call> call = Submit(second, {.accesses = {{1, true}}});
  Submit(third, {.accesses = {{1, true}}});
  call->Cancel();
  EXPECT_EQ(third.num_begins, 0) << "the first still runs";
  device_->ReleaseCompletions(0);
  EXPECT_THAT(third.Wait(), IsOk());
  EXPECT_THAT(first.Wait(), IsOk());
}

TEST_F(SchedulerTest, ACancelledMemberOfARunningBatchIsUndoneAndTheOthersAreNot) {
  Build(1);
  Fate occupant("occupant"), a("a"), cancelled("cancelled");
  Occupy(occupant);
  SubmitDecode(a);
  const std::shared_ptr<Call> call = SubmitDecode(cancelled);
  a.queue = [&](device::Lane&) {
    call->Cancel();
    return absl::OkStatus();
  };
  device_->ReleaseCompletions(0);
  EXPECT_THAT(a.Wait(), IsOk());
  EXPECT_THAT(cancelled.Wait(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(a.outcomes, ElementsAre(absl::OkStatus()));
  EXPECT_THAT(cancelled.outcomes, ElementsAre(StatusIs(absl::StatusCode::kCancelled)));
}

TEST_F(SchedulerTest, ALargeBatchIsAnsweredByOtherThreads) {
  Build(1);
  Fate occupant("occupant");
  Occupy(occupant);
  std::vector<std::unique_ptr<Fate>> fates;
  for (int i = 0; i < 100; ++i) SubmitDecode(*fates.emplace_back(std::make_unique<Fate>("step")));
  device_->ReleaseCompletions(0);
  for (const auto& fate : fates) EXPECT_THAT(fate->Wait(), IsOk());
  EXPECT_THAT(record_.launches(), SizeIs(2));
  EXPECT_TRUE(scheduler_->Drain(absl::Minutes(1)));
}

TEST_F(SchedulerTest, AFailedLaunchFailsAllItsMembers) {
  Build(1);
  Fate occupant("occupant"), a("a"), b("b");
  Occupy(occupant);
  b.queue = [](device::Lane&) { return absl::InternalError("broken"); };
  SubmitDecode(a);
  SubmitDecode(b);
  device_->ReleaseCompletions(0);
  for (Fate* fate : {&a, &b}) EXPECT_THAT(fate->Wait(), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(record_.launches(), SizeIs(2));
}

TEST_F(SchedulerTest, WhenMemoryRunsOutABatchFallsApart) {
  Build(1);
  Fate occupant("occupant"), a("a"), b("b"), c("c");
  Occupy(occupant);
  int tries = 0;
  a.queue = [&](device::Lane&) { return ++tries == 1 ? OutOfMemory() : absl::OkStatus(); };
  for (Fate* fate : {&a, &b, &c}) SubmitDecode(*fate);
  device_->ReleaseCompletions(0);
  for (Fate* fate : {&a, &b, &c}) EXPECT_THAT(fate->Wait(), IsOk());
  EXPECT_THAT(record_.launches(), ElementsAre(ElementsAre("occupant"), ElementsAre("a", "b", "c"), ElementsAre("a"),
                                              ElementsAre("b"), ElementsAre("c")));
  EXPECT_THAT(b.outcomes, ElementsAre(StatusIs(absl::StatusCode::kCancelled), IsOk()));
  EXPECT_EQ(b.num_begins, 2);
}

TEST_F(SchedulerTest, WhatFellApartFailsIfMemoryRunsOutForItAlone) {
  Build(1);
  Fate occupant("occupant"), a("a"), b("b");
  Occupy(occupant);
  a.queue = [](device::Lane&) { return OutOfMemory(); };
  SubmitDecode(a);
  SubmitDecode(b);
  device_->ReleaseCompletions(0);
  EXPECT_THAT(a.Wait(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(base::RetryDelay(a.status).has_value());
  EXPECT_THAT(b.Wait(), IsOk());
}

TEST_F(SchedulerTest, AClientWithALongLineDelaysNobody) {
  Build(1);
  Fate occupant("occupant"), modest("modest");
  Occupy(occupant);
  std::vector<std::unique_ptr<Fate>> greedy;
  for (int i = 0; i < 100; ++i) {
    greedy.push_back(std::make_unique<Fate>("greedy"));
    Submit(*greedy.back(), {.client = "greedy"});
  }
  Submit(modest, {.client = "modest"});
  device_->ReleaseCompletions(0);
  for (const auto& fate : greedy) EXPECT_THAT(fate->Wait(), IsOk());
  const auto launches = record_.launches();
  EXPECT_EQ(std::find(launches.begin(), launches.end(), std::vector<std::string>{"modest"}) - launches.begin(), 2)
      << "after the occupant and one of the other's";
}

TEST_F(SchedulerTest, ALateCancelChangesNothing) {
  Build(1);
  Fate fate("fate");
  const std::shared_ptr<Call> call = SubmitDecode(fate);
  EXPECT_THAT(fate.Wait(), IsOk());
  scheduler_->Drain(absl::InfiniteDuration());
  call->Cancel();
  EXPECT_THAT(fate.status, IsOk());
}

TEST_F(SchedulerTest, DrainWaitsForBatchesAndRefusesWhatComesLater) {
  Build(1);
  Fate occupant("occupant"), a("a"), b("b");
  Occupy(occupant);
  SubmitDecode(a);
  SubmitDecode(b);
  device_->ReleaseCompletions(0);
  EXPECT_TRUE(scheduler_->Drain(absl::Minutes(1)));
  for (Fate* fate : {&occupant, &a, &b}) EXPECT_THAT(fate->status, IsOk());
  Fate late("late");
  EXPECT_EQ(SubmitDecode(late), nullptr);
  EXPECT_THAT(late.status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(late.num_drops, 1);
}

}  // namespace
}  // namespace ridgeline::engine
