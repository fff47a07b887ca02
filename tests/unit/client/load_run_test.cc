#include "client/cli/load_run.h"

#include <atomic>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/cpp/tensor_io.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/client/fake_server.h"

namespace ridgeline::cli {
namespace {

using support::StatusIs;

constexpr std::uint64_t kSeed = 1;

WorkMix Mix(double decode_share = 0) {
  WorkMix mix;
  mix.shapes = *ParseWeightedShapes("2,16,1,8");
  mix.decode_share = decode_share;
  mix.context = *LengthDistribution::Parse("context", "fixed:100");
  return mix;
}

v1::AttendRequest RequestOf(const ProblemShape& shape) {
  v1::AttendRequest request;
  *request.mutable_query() = client::RandomTensor(v1::DATA_TYPE_FLOAT32, {shape.batch, shape.query_tokens, 1, 8}, 1);
  return request;
}

std::int64_t FailuresWith(const LoadCounts& counts, absl::StatusCode code) {
  return counts.failures_by_code[static_cast<std::size_t>(code)];
}

class LoadRunTest : public ::testing::Test {
 protected:
  // Runs against a server whose answer to the n-th call, from 0, is `answer(n)`.
  LoadOutcome Run(int num_workers, const LoadTiming& timing, const std::function<grpc::Status(std::int64_t)>& answer,
                  WorkMix mix = Mix()) {
    server_.attend = [&](const auto&, const auto&, v1::AttendResponse* response) {
      const int concurrent = ++num_concurrent_;
      for (int most = most_concurrent_; concurrent > most && !most_concurrent_.compare_exchange_weak(most, concurrent);) {
      }
      const grpc::Status status = answer(num_calls_++);
      response->mutable_report()->mutable_queue_time()->set_nanos(2'000'000);
      response->mutable_report()->mutable_upload_time()->set_nanos(3'000'000);
      response->mutable_report()->mutable_kernel_time()->set_nanos(5'000'000);
      --num_concurrent_;
      return status;
    };
    client::ClientOptions options;
    options.retry.max_attempts = 1;
    std::vector<client::Client> channels;
    channels.push_back(*client::Client::Create(server_.address(), options));
    channels.push_back(*client::Client::Create(server_.address(), options));
    LoadSchedule schedule(timing, std::move(mix), kSeed);
    return RunLoadThreads(channels, num_workers, timing, schedule, RequestOf, [](const LoadState&) {});
  }

  std::atomic<std::int64_t> num_calls_ = 0;
  std::atomic<int> num_concurrent_ = 0;
  std::atomic<int> most_concurrent_ = 0;
  client::FakeServer server_;  // last: it stops before what its handler uses goes
};

// How many requests an open loop intends after its warm-up.
std::int64_t CountIntended(const LoadTiming& timing) { return LoadSchedule(timing, Mix(), kSeed).CountUnsent(); }

TEST_F(LoadRunTest, TheClosedLoopCountsWhatItSent) {
  const LoadTiming timing = {/*warm_up_seconds=*/0.25, /*duration_seconds=*/0.5, /*drain_seconds=*/0, std::nullopt};
  const LoadOutcome outcome = Run(
      3, timing,
      [](std::int64_t) {
        absl::SleepFor(absl::Milliseconds(2));
        return grpc::Status::OK;
      },
      Mix(/*decode_share=*/0.5));
  const LoadCounts& prefill = outcome.prefill;
  const LoadCounts& decode = outcome.decode;
  EXPECT_EQ(prefill.num_sent + decode.num_sent + outcome.num_warm_up, num_calls_);
  EXPECT_LE(most_concurrent_, 3);
  EXPECT_GE(outcome.elapsed_seconds, 0.5);
  EXPECT_EQ(outcome.num_unsent, 0);
  EXPECT_OK(outcome.first_failure);
  for (const LoadCounts* counts : {&prefill, &decode}) {
    EXPECT_EQ(counts->num_answered, counts->num_sent);
    EXPECT_EQ(counts->latency.count(), counts->num_sent);
    EXPECT_EQ(counts->num_late, 0);
  }
  EXPECT_EQ(prefill.query_tokens, prefill.num_answered * 2 * 16);
  EXPECT_EQ(prefill.key_tokens, prefill.num_answered * 2 * 16);
  EXPECT_EQ(decode.query_tokens, decode.num_answered * 2 * 1);
  EXPECT_EQ(decode.key_tokens, decode.num_answered * 2 * 100);

  LoadCounts all = prefill;
  all.Add(decode);
  ASSERT_GT(all.num_answered, 0);
  EXPECT_GE(all.latency.Summarize({1}).quantiles[0], 2e-3);  // the server's own time, at least
  EXPECT_DOUBLE_EQ(all.queue.Summarize({}).max, 2e-3);
  EXPECT_DOUBLE_EQ(all.inputs.Summarize({}).max, 3e-3);
  EXPECT_DOUBLE_EQ(all.kernel.Summarize({}).max, 5e-3);
}

// One stall of half a second delays everyone who meant to call meanwhile. A loop that waited before it meant to call would
// count one slow request of a hundred, and its p90 would know nothing of it.
TEST_F(LoadRunTest, TheOpenLoopCountsTheWaitOfEveryoneBehindAStall) {
  const LoadTiming timing = {/*warm_up_seconds=*/0, /*duration_seconds=*/1, /*drain_seconds=*/600, /*rate_per_second=*/100};
  LoadOutcome outcome = Run(1, timing, [](std::int64_t call) {
    if (call == 5) absl::SleepFor(absl::Milliseconds(500));
    return grpc::Status::OK;
  });
  LoadCounts& counts = outcome.prefill;
  EXPECT_EQ(counts.num_answered, CountIntended(timing));
  EXPECT_EQ(outcome.num_unsent, 0);
  EXPECT_EQ(counts.num_sent, num_calls_);
  const Samples::Summary latency = counts.latency.Summarize({900, 990});
  EXPECT_GE(latency.quantiles[0], 0.2);
  EXPECT_GE(latency.quantiles[1], 0.4);
  EXPECT_GE(latency.max, 0.5);
  EXPECT_GE(counts.send_delay.Summarize({900}).quantiles[0], 0.2);
  EXPECT_GE(counts.num_late, counts.num_sent / 4);
}

TEST_F(LoadRunTest, TheOpenLoopSaysWhatItCouldNotSend) {
  const LoadTiming timing = {/*warm_up_seconds=*/0, /*duration_seconds=*/0.25, /*drain_seconds=*/0, /*rate_per_second=*/1000};
  const LoadOutcome outcome = Run(2, timing, [](std::int64_t) {
    absl::SleepFor(absl::Milliseconds(50));
    return grpc::Status::OK;
  });
  EXPECT_EQ(outcome.prefill.num_sent + outcome.num_unsent, CountIntended(timing));
  EXPECT_LE(outcome.prefill.num_sent, 2 * (5 + 1));  // each worker's calls take 50 ms, and none begins after the end
  EXPECT_LE(most_concurrent_, 2);
}

TEST_F(LoadRunTest, FailuresCountByCodeAndHaveNoLatency) {
  const LoadTiming timing = {/*warm_up_seconds=*/0, /*duration_seconds=*/1, /*drain_seconds=*/600, /*rate_per_second=*/200};
  const LoadOutcome outcome = Run(1, timing, [](std::int64_t call) {
    if (call % 4 == 0) return grpc::Status(grpc::RESOURCE_EXHAUSTED, "the queue is full");
    if (call % 4 == 1) return grpc::Status(grpc::INTERNAL, "a fault");
    return grpc::Status::OK;
  });
  const LoadCounts& counts = outcome.prefill;
  const std::int64_t num_sent = CountIntended(timing);
  EXPECT_EQ(counts.num_sent, num_sent);
  EXPECT_EQ(FailuresWith(counts, absl::StatusCode::kResourceExhausted), (num_sent + 3) / 4);
  EXPECT_EQ(FailuresWith(counts, absl::StatusCode::kInternal), (num_sent + 2) / 4);
  EXPECT_EQ(counts.num_failed(), (num_sent + 3) / 4 + (num_sent + 2) / 4);
  EXPECT_EQ(counts.latency.count(), counts.num_answered);
  EXPECT_EQ(counts.send_delay.count(), num_sent);
  EXPECT_THAT(outcome.first_failure, StatusIs(absl::StatusCode::kResourceExhausted, "the queue is full"));
  EXPECT_OK(outcome.ended_by);
}

TEST_F(LoadRunTest, AClosedLoopGoesOnAfterARefusal) {
  const LoadTiming timing = {/*warm_up_seconds=*/0, /*duration_seconds=*/0.5, /*drain_seconds=*/0, std::nullopt};
  const LoadOutcome outcome = Run(2, timing, [](std::int64_t) { return grpc::Status(grpc::RESOURCE_EXHAUSTED, "full"); });
  EXPECT_EQ(outcome.prefill.num_answered, 0);
  EXPECT_EQ(FailuresWith(outcome.prefill, absl::StatusCode::kResourceExhausted), num_calls_);
  EXPECT_LE(num_calls_, 2 * (50 + 1));  // with a pause of 10 ms after each
}

TEST_F(LoadRunTest, AWrongRequestEndsTheLoadAtOnce) {
  for (const std::optional<double> rate : {std::optional<double>(), std::optional<double>(50)}) {
    const LoadTiming timing = {/*warm_up_seconds=*/0, /*duration_seconds=*/86'400, /*drain_seconds=*/0, rate};
    const LoadOutcome outcome = Run(4, timing, [](std::int64_t) { return grpc::Status(grpc::INVALID_ARGUMENT, "head_dim"); });
    EXPECT_THAT(outcome.ended_by, StatusIs(absl::StatusCode::kInvalidArgument, "head_dim"));
    EXPECT_EQ(outcome.num_unsent, 0);
  }
}

}  // namespace
}  // namespace ridgeline::cli
