#include "server/engine/trace/trace_recorder.h"

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::engine {
namespace {

const absl::Time kBegin = absl::FromUnixSeconds(1'700'000'000);

CallRecord CallAt(absl::Time begin) { return {.method = "m", .begin = begin, .end = begin + absl::Seconds(1)}; }

TEST(TraceRecorder, KeepsWhatBeganWhileItWasOn) {
  TraceRecorder recorder;
  recorder.Add(CallAt(kBegin));
  EXPECT_FALSE(recorder.is_on());
  ASSERT_OK(recorder.Begin(kBegin, 10));
  EXPECT_TRUE(recorder.is_on());
  recorder.Add(CallAt(kBegin - absl::Nanoseconds(1)));
  recorder.Add(CallAt(kBegin + absl::Seconds(1)));
  const TraceRecords records = recorder.End(kBegin + absl::Seconds(5));
  recorder.Add(CallAt(kBegin + absl::Seconds(6)));
  EXPECT_FALSE(recorder.is_on());
  ASSERT_EQ(records.calls.size(), 1);
  EXPECT_EQ(records.calls.front().begin, kBegin + absl::Seconds(1));
  EXPECT_EQ(records.end - records.begin, absl::Seconds(5));
}

TEST(TraceRecorder, CountsWhatHasNoRoom) {
  TraceRecorder recorder;
  ASSERT_OK(recorder.Begin(kBegin, 2));
  for (int i = 0; i < 3; ++i) recorder.Add(CallAt(kBegin));
  recorder.Add(RequestRecord{.arrival = kBegin});
  recorder.Add(LaunchRecord{.begin = kBegin});
  const TraceRecords records = recorder.End(kBegin);
  EXPECT_EQ(records.calls.size(), 2);
  EXPECT_EQ(records.dropped, 3);
  ASSERT_OK(recorder.Begin(kBegin, 2));
  EXPECT_EQ(recorder.End(kBegin).dropped, 0) << "each capture has a count of its own";
}

TEST(TraceRecorder, OneCaptureAtATime) {
  TraceRecorder recorder;
  ASSERT_OK(recorder.Begin(kBegin, 1));
  const absl::Status second = recorder.Begin(kBegin, 1);
  EXPECT_EQ(second.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ErrorReason(second), base::kReasonCaptureRunning);
  EXPECT_TRUE(base::RetryDelay(second).has_value());
  recorder.End(kBegin);
  EXPECT_OK(recorder.Begin(kBegin, 1));
}

}  // namespace
}  // namespace ridgeline::engine
