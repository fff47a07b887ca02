// What waits, for what, and what becomes of it: a lack of memory beside other work, deadlines in a full queue, work that is
// stuck.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/engine_fixture.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine {
namespace {

using support::IsOk;
using support::StatusIs;

absl::Status OutOfMemory() {
  return base::WithReason(absl::ResourceExhaustedError("the test says so"), base::kReasonOutOfMemory);
}

// Two lanes; work on the first, held, keeps what runs on the second from being alone.
class OutOfMemoryTest : public EngineFixture {
 protected:
  void SetUp() override {
    Build({}, /*num_lanes=*/2);
    Occupy(neighbour_);
  }
  void TearDown() override { device_->ReleaseCompletions(0); }

  // Work whose n-th call of the device, in the midst of its uploads, finds no memory; returns when it waits for its retry.
  std::shared_ptr<Call> AttendWithoutMemory(const Answer& answer, AttendRequest request = SmallRequest()) {
    FailNextUpload();
    std::shared_ptr<Call> call = Attend(answer, absl::InfiniteFuture(), std::move(request));
    while (engine_->load().queued_requests == 0) std::this_thread::yield();
    return call;
  }

  void FailNextUpload() { device_->FailCall(3, OutOfMemory()); }

  Answer neighbour_;
};

TEST_F(OutOfMemoryTest, WorkWaitsUntilItIsAloneAndThenSucceeds) {
  Answer retried;
  AttendWithoutMemory(retried);
  EXPECT_FALSE(retried.arrived());
  EXPECT_EQ(engine_->load().running_requests, 1) << "it gave its lane back";
  device_->ReleaseCompletions(0);
  EXPECT_THAT(retried.Wait(), IsOk());
  EXPECT_THAT(neighbour_.Wait(), IsOk());
}

TEST_F(OutOfMemoryTest, TheInputsAreThereForTheRetry) {
  auto bytes = std::make_shared<std::vector<std::byte>>(2 * 3 * 4 * 8 * 4);
  const std::weak_ptr<const void> watched = bytes;
  AttendRequest request = SmallRequest();
  request.query = InlineTensor({2, 3, 4, 8}, kernels::DataType::kFloat32, *bytes);
  std::get<InlineData>(request.query->storage).owner = std::move(bytes);
  Answer retried;
  AttendWithoutMemory(retried, std::move(request));
  EXPECT_FALSE(watched.expired());
  device_->ReleaseCompletions(0);
  EXPECT_THAT(retried.Wait(), IsOk());
}

TEST_F(OutOfMemoryTest, WhatComesLaterWaitsBehindIt) {
  Answer retried, later;
  AttendWithoutMemory(retried);
  Attend(later);
  EXPECT_EQ(engine_->load().queued_requests, 2) << "a lane is free, but the retry comes first";
  device_->ReleaseCompletions(0);
  EXPECT_THAT(later.Wait(), IsOk());
  EXPECT_TRUE(retried.arrived());
}

TEST_F(OutOfMemoryTest, ASecondTimeItFailsAndSaysWhenToComeBack) {
  Answer retried;
  AttendWithoutMemory(retried);
  FailNextUpload();
  device_->ReleaseCompletions(0);
  EXPECT_THAT(retried.Wait(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(base::ErrorReason(retried.Wait().status()), base::kReasonOutOfMemory);
  const std::optional<absl::Duration> delay = base::RetryDelay(retried.Wait().status());
  ASSERT_TRUE(delay.has_value());
  EXPECT_GT(*delay, absl::ZeroDuration());
  neighbour_ = Answer();
  EXPECT_TRUE(AllMemoryReturns(*device_));
}

TEST_F(OutOfMemoryTest, AloneItFailsAtOnce) {
  device_->ReleaseCompletions(0);
  ASSERT_THAT(neighbour_.Wait(), IsOk());
  FailNextUpload();
  Answer alone;
  Attend(alone);
  EXPECT_THAT(alone.Wait(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(base::RetryDelay(alone.Wait().status()).has_value());
}

TEST_F(OutOfMemoryTest, CancelledWhileItWaitsItGivesMemoryAndPlaceBack) {
  const std::int64_t neighbours_allocations = device_->memory_stats().allocation_count;
  const std::int64_t neighbours_bytes = engine_->load().admitted_bytes;
  Answer cancelled;
  const std::shared_ptr<Call> call = AttendWithoutMemory(cancelled);
  EXPECT_EQ(device_->memory_stats().allocation_count, neighbours_allocations);
  Answer later;
  Attend(later);
  EXPECT_FALSE(later.arrived());
  call->Cancel();
  EXPECT_THAT(cancelled.Wait(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(later.Wait(), IsOk()) << "beside the neighbour, which is still held";
  EXPECT_FALSE(neighbour_.arrived());
  EXPECT_EQ(engine_->load().queued_requests, 0);
  EXPECT_EQ(engine_->load().admitted_bytes, neighbours_bytes);
}

class DeadlineTest : public EngineFixture {};

TEST_F(DeadlineTest, OneThatHasPassedCostsNoLane) {
  Build({});
  for (const absl::Duration late_by : {absl::ZeroDuration(), absl::Seconds(1)}) {
    Answer late;
    EXPECT_EQ(Attend(late, clock_.Now() - late_by), nullptr);
    ASSERT_TRUE(late.arrived());
    EXPECT_THAT(late.Wait(), StatusIs(absl::StatusCode::kDeadlineExceeded));
    EXPECT_EQ(base::ErrorReason(late.Wait().status()), base::kReasonDeadlineExceeded);
  }
  EXPECT_EQ(device_->num_calls(), 0);
}

TEST_F(DeadlineTest, AFullQueueDropsWhoWaitsInVain) {
  Build({.admission = {.max_queued_requests = 2}});
  Answer running, late, patient, next, refused;
  Occupy(running);
  Attend(late, clock_.Now() + absl::Seconds(1));
  Attend(patient);
  clock_.Advance(absl::Seconds(2));
  EXPECT_FALSE(late.arrived()) << "nobody needed its place";
  EXPECT_NE(Attend(next), nullptr);
  ASSERT_TRUE(late.arrived());
  EXPECT_THAT(late.Wait(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Attend(refused), nullptr) << "who waits in hope keeps its place";
  device_->ReleaseCompletions(0);
  EXPECT_THAT(patient.Wait(), IsOk());
  EXPECT_THAT(next.Wait(), IsOk());
}

class StuckTest : public EngineFixture {};

TEST_F(StuckTest, AMinuteWithoutACompletionIsUnhealthyUntilTheNext) {
  Build({}, /*num_lanes=*/2);
  Answer first, second;
  Occupy(first, 0);
  Occupy(second, 1);
  clock_.Advance(absl::Minutes(1));
  EXPECT_THAT(engine_->health(), IsOk());
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(engine_->health(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(base::ErrorReason(engine_->health()), base::kReasonDeviceFailed);
  device_->ReleaseCompletions(1);
  EXPECT_THAT(second.Wait(), IsOk());
  EXPECT_THAT(engine_->health(), IsOk()) << "the first is still pending, but one has completed";
  device_->ReleaseCompletions(0);
  EXPECT_THAT(first.Wait(), IsOk());
}

TEST_F(StuckTest, IdleIsHealthyHoweverLong) {
  Build({});
  Answer before, after;
  Attend(before);
  ASSERT_THAT(before.Wait(), IsOk());
  clock_.Advance(absl::Hours(24));
  EXPECT_THAT(engine_->health(), IsOk());
  Occupy(after);
  EXPECT_THAT(engine_->health(), IsOk()) << "the pause does not count as silence";
  device_->ReleaseCompletions(0);
  EXPECT_THAT(after.Wait(), IsOk());
}

}  // namespace
}  // namespace ridgeline::engine
