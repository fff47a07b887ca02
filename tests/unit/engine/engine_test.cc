#include "server/engine/engine.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/engine_fixture.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine {
namespace {

using kernels::attention::Algorithm;
using support::IsOk;
using support::StatusIs;
using ::testing::HasSubstr;

class EngineTest : public EngineFixture {};

TEST_F(EngineTest, AnswersAndGivesMemoryBack) {
  Build({});
  Answer answer;
  Attend(answer);
  ASSERT_THAT(answer.Wait(), IsOk());
  const AttendResult& result = *answer.Wait();
  EXPECT_EQ(result.output->shape, (std::vector<std::int64_t>{2, 3, 4, 8}));
  EXPECT_EQ(result.report.batch_requests, 1);
  EXPECT_GT(result.report.flops, 0);
  EXPECT_EQ(result.report.device, device_->info().name);
  EXPECT_FALSE(result.report.kernel.empty());
  answer = Answer();  // the output's memory is the device's until it goes
  EXPECT_TRUE(AllMemoryReturns(*device_));
}

TEST_F(EngineTest, DiscardReturnsOnlyTheReport) {
  Build({});
  AttendRequest request = SmallRequest();
  request.output.discard = true;
  request.output.log_sum_exp = true;
  Answer answer;
  Attend(answer, absl::InfiniteFuture(), std::move(request));
  ASSERT_THAT(answer.Wait(), IsOk());
  EXPECT_FALSE(answer.Wait()->output.has_value());
  EXPECT_FALSE(answer.Wait()->log_sum_exp.has_value());
  EXPECT_TRUE(AllMemoryReturns(*device_));
}

TEST_F(EngineTest, RefusesABadRequestBeforeReturning) {
  Build({});
  AttendRequest request = SmallRequest();
  request.options.window_left = -1;
  Answer answer;
  EXPECT_EQ(Attend(answer, absl::InfiniteFuture(), std::move(request)), nullptr);
  ASSERT_TRUE(answer.arrived());
  EXPECT_EQ(base::ErrorField(answer.Wait().status()), "options.window_left");
  EXPECT_EQ(device_->memory_stats().total_allocation_count, 0);
}

TEST_F(EngineTest, RefusesWhatMemoryCannotHoldAndSaysWhatFlashTakes) {
  Build({});
  Answer answer;
  AttendRequest request = RandomRequest(2'000'000, 1, Algorithm::kStandard);
  request.query->shape[3] = request.dense->key->shape[3] = request.dense->value->shape[3] = 8;
  EXPECT_EQ(Attend(answer, absl::InfiniteFuture(), std::move(request)), nullptr);
  ASSERT_TRUE(answer.arrived());
  EXPECT_THAT(answer.Wait(), StatusIs(absl::StatusCode::kResourceExhausted,
                                      ::testing::AllOf(HasSubstr("standard attention takes"), HasSubstr("16000"),
                                                       HasSubstr("flash attention takes"))));
  EXPECT_EQ(base::ErrorReason(answer.Wait().status()), base::kReasonOutOfMemory);
  EXPECT_EQ(device_->memory_stats().total_allocation_count, 0);
}

TEST_F(EngineTest, RefusesAnAnswerThatTheCallerCannotTakeBack) {
  Build({});
  const std::int64_t output_bytes = 2 * 3 * 4 * 8 * 4, log_sum_exp_bytes = 2 * 3 * 4 * 4;
  const auto attend = [&](bool log_sum_exp, bool discard) {
    AttendRequest request = SmallRequest();
    request.output.log_sum_exp = log_sum_exp;
    request.output.discard = discard;
    Answer answer;
    engine_->Attend(std::move(request), {.origin = {.request_id = "test"}, .max_answer_bytes = output_bytes},
                    answer.Callback());
    return answer.Wait().status();
  };
  EXPECT_THAT(attend(/*log_sum_exp=*/false, /*discard=*/false), IsOk());
  EXPECT_THAT(attend(/*log_sum_exp=*/true, /*discard=*/true), IsOk());
  const std::int64_t calls = device_->num_calls();
  const absl::Status status = attend(/*log_sum_exp=*/true, /*discard=*/false);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               ::testing::AllOf(HasSubstr(absl::StrCat(output_bytes + log_sum_exp_bytes, " bytes")),
                                                HasSubstr(absl::StrCat(output_bytes, " bytes")), HasSubstr("output.discard"))));
  EXPECT_EQ(base::ErrorReason(status), base::kReasonMessageTooLarge);
  EXPECT_EQ(device_->num_calls(), calls) << "it was computed";
}

TEST_F(EngineTest, LetsGoOfTheInputsOnceTheyAreUploaded) {
  Build({});
  auto bytes = std::make_shared<std::vector<std::byte>>(2 * 3 * 4 * 8 * 4);
  const std::weak_ptr<const void> watched = bytes;
  AttendRequest request = SmallRequest();
  request.query = InlineTensor({2, 3, 4, 8}, kernels::DataType::kFloat32, *bytes);
  std::get<InlineData>(request.query->storage).owner = std::move(bytes);
  device_->HoldCompletions(0);
  Answer answer;
  const std::shared_ptr<Call> call = Attend(answer, absl::InfiniteFuture(), std::move(request));
  device_->AwaitHeldCompletion(0);
  EXPECT_TRUE(watched.expired()) << "something but the lane keeps them";
  device_->ReleaseCompletions(0);
  EXPECT_THAT(answer.Wait(), IsOk());
}

TEST_F(EngineTest, HostileCountsOfEmptySequencesCostNothing) {
  Build({});
  for (const Algorithm algorithm : {Algorithm::kStandard, Algorithm::kFlash}) {
    AttendRequest request;
    request.query = RandomTensor({1 << 20, 0, 1 << 16, 8}, 1);
    request.dense.emplace();
    request.dense->key = RandomTensor({1 << 20, 0, 1 << 16, 8}, 2);
    request.dense->value = RandomTensor({1 << 20, 0, 1 << 16, 8}, 3);
    request.options.algorithm = algorithm;
    Answer answer;
    Attend(answer, absl::InfiniteFuture(), std::move(request));
    EXPECT_THAT(answer.Wait(), IsOk());
  }
}

TEST_F(EngineTest, ServesInOrderOfArrival) {
  Build({});
  Answer first, second, third;
  Occupy(first);
  Attend(second);
  Attend(third);
  EXPECT_EQ(engine_->load().queued_requests, 2);
  EXPECT_EQ(engine_->load().running_requests, 1);
  EXPECT_FALSE(second.arrived());
  device_->ReleaseCompletions(0);
  EXPECT_THAT(third.Wait(), IsOk());
  EXPECT_TRUE(first.arrived());
  EXPECT_TRUE(second.arrived());
}

TEST_F(EngineTest, RefusesWhenTheQueueIsFullAndSaysWhenToComeBack) {
  Build({.admission = {.max_queued_requests = 1}});
  Answer running, waiting, refused;
  Occupy(running);
  Attend(waiting);
  EXPECT_EQ(Attend(refused), nullptr);
  ASSERT_TRUE(refused.arrived());
  EXPECT_THAT(refused.Wait(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(base::ErrorReason(refused.Wait().status()), base::kReasonQueueFull);
  EXPECT_TRUE(base::RetryDelay(refused.Wait().status()).has_value());
  device_->ReleaseCompletions(0);
  EXPECT_THAT(waiting.Wait(), IsOk());
}

TEST_F(EngineTest, BoundsTheBytesOfAdmittedWork) {
  Build({.admission = {.max_queued_bytes = 1}});
  Answer running, refused;
  Occupy(running);  // alone, it may exceed the bound
  EXPECT_EQ(Attend(refused), nullptr);
  EXPECT_EQ(base::ErrorReason(refused.Wait().status()), base::kReasonQueueFull);
  device_->ReleaseCompletions(0);
  EXPECT_THAT(running.Wait(), IsOk());
}

TEST_F(EngineTest, DropsWhatIsTooLateWhenItsTurnComes) {
  Build({});
  Answer running, late;
  Occupy(running);
  Attend(late, clock_.Now() + absl::Seconds(1));
  clock_.Advance(absl::Seconds(2));
  device_->ReleaseCompletions(0);
  EXPECT_THAT(late.Wait(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(running.Wait(), IsOk());
}

TEST_F(EngineTest, CancelsWaitingWorkAtOnce) {
  Build({});
  Answer running, waiting;
  Occupy(running);
  const std::shared_ptr<Call> call = Attend(waiting);
  call->Cancel();
  ASSERT_TRUE(waiting.arrived());
  EXPECT_THAT(waiting.Wait(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(engine_->load().queued_requests, 0);
  device_->ReleaseCompletions(0);
  EXPECT_THAT(running.Wait(), IsOk());
}

TEST_F(EngineTest, CancelsRunningWorkAndGetsItsMemoryBack) {
  Build({});
  Answer running;
  const std::shared_ptr<Call> call = Occupy(running);
  EXPECT_GT(device_->memory_stats().allocation_count, 0);
  call->Cancel();
  ASSERT_TRUE(running.arrived());
  EXPECT_THAT(running.Wait(), StatusIs(absl::StatusCode::kCancelled));
  device_->ReleaseCompletions(0);
  EXPECT_TRUE(AllMemoryReturns(*device_));
  Answer next;
  Attend(next);
  EXPECT_THAT(next.Wait(), IsOk());
}

TEST_F(EngineTest, ALateCancelChangesNothing) {
  Build({});
  Answer answer;
  const std::shared_ptr<Call> call = Attend(answer);
  ASSERT_THAT(answer.Wait(), IsOk());
  call->Cancel();
  call->Cancel();
  EXPECT_THAT(answer.Wait(), IsOk());
}

TEST_F(EngineTest, CancelCutsALongKernelShort) {
  Build({});
  Answer answer;
  const std::shared_ptr<Call> call =
      Attend(answer, absl::InfiniteFuture(), RandomRequest(60'000, 1, Algorithm::kFlash));  // many seconds of work
  call->Cancel();
  EXPECT_THAT(answer.Wait(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_TRUE(AllMemoryReturns(*device_));
}

TEST_F(EngineTest, DrainFinishesWhatWasAdmittedAndRefusesTheRest) {
  Build({});
  Answer running, waiting, refused;
  Occupy(running);
  Attend(waiting);
  std::thread drain([&] { EXPECT_TRUE(engine_->Drain(absl::Minutes(1))); });
  while (!engine_->load().draining) std::this_thread::yield();
  EXPECT_EQ(Attend(refused), nullptr);
  EXPECT_THAT(refused.Wait(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(base::ErrorReason(refused.Wait().status()), base::kReasonDraining);
  device_->ReleaseCompletions(0);
  drain.join();
  EXPECT_THAT(running.Wait(), IsOk());
  EXPECT_THAT(waiting.Wait(), IsOk());
}

TEST_F(EngineTest, DrainCancelsWhatDoesNotFinishInTime) {
  Build({});
  Answer running, waiting;
  Occupy(running);
  Attend(waiting);
  std::thread release([&] {
    running.Wait();
    waiting.Wait();
    device_->ReleaseCompletions(0);
  });
  EXPECT_FALSE(engine_->Drain(absl::Milliseconds(10)));
  release.join();
  EXPECT_FALSE(running.Wait().ok());
  EXPECT_FALSE(waiting.Wait().ok());
  EXPECT_TRUE(AllMemoryReturns(*device_));
}

TEST_F(EngineTest, ALostDeviceIsUnhealthyAndRefusesWork) {
  Build({});
  EXPECT_OK(engine_->health());
  device_->Lose(absl::UnavailableError("the test took it away"));
  EXPECT_THAT(engine_->health(), StatusIs(absl::StatusCode::kUnavailable));
  Answer answer;
  Attend(answer);
  EXPECT_THAT(answer.Wait(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(EngineTest, ManyThreadsAreAllAnswered) {
  Build({}, /*num_lanes=*/3);
  constexpr int kThreads = 4, kCalls = 50;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        Answer answer;
        const std::shared_ptr<Call> call = Attend(answer);
        if ((i + t) % 3 == 0 && call != nullptr) call->Cancel();
        const absl::StatusOr<AttendResult>& result = answer.Wait();
        EXPECT_TRUE(result.ok() || absl::IsCancelled(result.status())) << result.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Who cancelled is answered before the lane comes back.
  EXPECT_TRUE(engine_->Drain(absl::Minutes(1)));
  EXPECT_EQ(engine_->load().running_requests, 0);
  EXPECT_TRUE(AllMemoryReturns(*device_));
}

TEST_F(EngineTest, CountsWhatItDid) {
  Build({});
  Answer answer;
  Attend(answer);
  ASSERT_THAT(answer.Wait(), IsOk());
  ASSERT_TRUE(engine_->Drain(absl::Minutes(1)));
  const std::string text = metrics_.Serialize();
  EXPECT_THAT(text, HasSubstr("ridgeline_requests_total{operation=\"attend\",outcome=\"ok\"} 1"));
  for (const char* name :
       {"ridgeline_kernel_seconds", "ridgeline_flops_total", "ridgeline_lanes_busy", "ridgeline_allocator_allocated_bytes",
        "ridgeline_allocator_reserved_bytes", "ridgeline_queue_wait_seconds", "ridgeline_build_info",
        "ridgeline_batch_requests_bucket", "ridgeline_kv_caches 0", "ridgeline_kv_pages{state=\"used\"} 0",
        "ridgeline_kv_pages{state=\"free\"} 0", "ridgeline_kv_evicted_sequences_total 0", "ridgeline_kv_copied_pages_total 0",
        "ridgeline_kv_expired_caches_total 0"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
}

}  // namespace
}  // namespace ridgeline::engine
