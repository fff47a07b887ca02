#include "client/cli/load_session_run.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/client/fake_session_server.h"

namespace ridgeline::cli {
namespace {

using client::FakeSessionServer;
using support::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;

constexpr std::uint64_t kSeed = 1;
constexpr int kLayers = 2;
constexpr std::int64_t kChunkTokens = 16;

LengthDistribution Lengths(const std::string& text) { return *LengthDistribution::Parse("context", text); }

std::int64_t FailuresWith(const LoadCounts& counts, absl::StatusCode code) {
  return counts.failures_by_code[static_cast<std::size_t>(code)];
}

// Lengths that the layers of each sequence had after each step, in order.
std::map<std::string, std::vector<std::int64_t>> LengthsOfLayer(const std::vector<FakeSessionServer::Step>& steps, int layer) {
  std::map<std::string, std::vector<std::int64_t>> lengths;
  for (const FakeSessionServer::Step& step : steps) {
    const v1::PagedKeyValue& paged = step.request.paged();
    if (paged.layer() == layer) lengths[paged.sequences(0)].push_back(step.length);
  }
  return lengths;
}

class LoadSessionRunTest : public ::testing::Test {
 protected:
  LoadOutcome Run(const SessionLoad& load, const SessionMix& mix) {
    SessionGeometry geometry;
    geometry.shape = *ParseProblemShape("shapes", "1,16,100,4,2,8");
    geometry.layers = kLayers;
    const SessionRequests requests(geometry);
    client::ClientOptions options;
    options.own_connection = true;
    std::vector<client::Client> channels;
    for (int i = 0; i < 2; ++i) channels.push_back(*client::Client::Create(server_.address(), options));
    const std::vector<std::string> caches = {"kvCaches/a", "kvCaches/b"};
    SessionSchedule schedule(load.timing, mix, load.num_clients, kSeed);
    return RunSessions(channels, caches, load, requests, schedule, [](const SessionLoadState&) {});
  }

  // Every sequence is gone, whatever happened to the load.
  void TearDown() override { EXPECT_EQ(server_.num_sequences(), 0); }

  FakeSessionServer server_{kLayers};
};

SessionLoad ClosedLoad(int num_clients) {
  SessionLoad load;
  load.timing = {/*warm_up_seconds=*/0.1, /*duration_seconds=*/0.3, /*drain_seconds=*/0, std::nullopt};
  load.num_clients = num_clients;
  return load;
}

SessionLoad OpenLoad(int num_clients, std::optional<double> rate) {
  SessionLoad load;
  load.timing = {/*warm_up_seconds=*/0, /*duration_seconds=*/0.5, /*drain_seconds=*/600, rate};
  load.num_clients = num_clients;
  return load;
}

TEST_F(LoadSessionRunTest, AClosedLoopFillsContextsThenDecodesAndTruncates) {
  constexpr int kClients = 20;
  const SessionMix mix = {Lengths("fixed:5000"), Lengths("fixed:7")};
  const LoadOutcome outcome = Run(ClosedLoad(kClients), mix);
  EXPECT_OK(outcome.first_failure);
  EXPECT_EQ(server_.num_created(), kClients);
  EXPECT_EQ(server_.num_streams(), kClients);

  // Contexts are made by the server, in pieces.
  std::map<std::pair<std::string, int>, std::int64_t> filled;
  std::set<std::uint64_t> seeds;
  for (const v1::AppendKeyValueRequest& append : server_.appends()) {
    filled[{append.sequences(0), append.layer()}] += append.key().shape(1);
    EXPECT_LE(append.key().shape(1), kMaxFillTokens);
    seeds.insert(append.key().random().seed());
    seeds.insert(append.value().random().seed());
  }
  EXPECT_EQ(filled.size(), kClients * kLayers);
  for (const auto& [sequence, tokens] : filled) EXPECT_EQ(tokens, 5000);
  EXPECT_EQ(seeds.size(), kClients * kLayers * 2 * 2);  // all different

  // Every step brings its own token; the rounds end at 7 tokens, the first somewhere before.
  const std::vector<FakeSessionServer::Step> steps = server_.steps();
  ASSERT_FALSE(steps.empty());
  for (const FakeSessionServer::Step& step : steps) {
    EXPECT_THAT(step.request.query().shape(), ElementsAre(1, 1, 4, 8));
    EXPECT_EQ(step.request.query().inline_data().size(), 4 * 8 * sizeof(float));
    EXPECT_THAT(step.request.paged().new_key().shape(), ElementsAre(1, 1, 2, 8));
    EXPECT_TRUE(step.request.output().discard());
  }
  std::set<std::int64_t> first_rounds;
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto lengths_of = LengthsOfLayer(steps, layer);
    EXPECT_EQ(lengths_of.size(), kClients);
    for (const auto& [sequence, lengths] : lengths_of) {
      bool is_first_round = true;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        const bool begins_a_round = i == 0 || lengths[i] <= lengths[i - 1];
        EXPECT_EQ(lengths[i], begins_a_round ? 5001 : lengths[i - 1] + 1);
        if (i == 0 || !begins_a_round) continue;
        if (is_first_round) first_rounds.insert(lengths[i - 1]);
        if (!is_first_round) {
          EXPECT_EQ(lengths[i - 1], 5007);
        }
        is_first_round = false;
      }
    }
  }
  EXPECT_THAT(first_rounds, Each(Le(5007)));
  EXPECT_GT(first_rounds.size(), 1);

  const LoadCounts& decode = outcome.decode;
  EXPECT_EQ(outcome.prefill.num_sent, 0);
  EXPECT_EQ(decode.num_sent + outcome.num_warm_up, static_cast<std::int64_t>(steps.size()));
  EXPECT_EQ(decode.num_answered, decode.num_sent);
  EXPECT_EQ(decode.queue.count(), decode.num_answered);
  EXPECT_EQ(decode.latency.count(), decode.query_tokens);  // of a token, all layers
  EXPECT_NEAR(decode.query_tokens, decode.num_answered / kLayers, kClients);
  EXPECT_GE(decode.key_tokens, 5001 * decode.query_tokens);
  EXPECT_LE(decode.key_tokens, 5007 * decode.query_tokens);
  EXPECT_EQ(decode.batch_requests, 4 * decode.num_answered);
  EXPECT_NEAR(decode.device_seconds, 2e-3 * decode.num_answered, 1e-6 * decode.num_answered);
  EXPECT_GE(outcome.elapsed_seconds, 0.3);
  EXPECT_LE(outcome.sessions.num_completed, server_.num_truncated());
}

TEST_F(LoadSessionRunTest, SomeClientsPrefillInChunksWhileOthersDecode) {
  SessionMix mix = {Lengths("fixed:40"), Lengths("fixed:1000000")};
  mix.decode_share = 0.5;
  const LoadOutcome outcome = Run(ClosedLoad(4), mix);
  EXPECT_OK(outcome.first_failure);
  std::map<std::string, std::vector<std::int64_t>> chunks;
  std::set<std::string> decoding;
  for (const FakeSessionServer::Step& step : server_.steps()) {
    const v1::PagedKeyValue& paged = step.request.paged();
    if (step.request.query().has_random()) {
      EXPECT_TRUE(step.request.options().causal());
      EXPECT_EQ(step.request.query().shape(1), paged.new_key().shape(1));
      if (paged.layer() == 0) chunks[paged.sequences(0)].push_back(step.length);
    } else {
      decoding.insert(paged.sequences(0));
    }
  }
  EXPECT_EQ(decoding.size(), 2);
  EXPECT_EQ(chunks.size(), 2);
  for (const auto& [sequence, lengths] : chunks) {
    EXPECT_FALSE(decoding.contains(sequence));
    constexpr std::int64_t kLengths[] = {kChunkTokens, 2 * kChunkTokens, 40};
    for (std::size_t i = 0; i < lengths.size(); ++i) EXPECT_EQ(lengths[i], kLengths[i % 3]);
  }
  EXPECT_GT(outcome.prefill.num_answered, 0);
  EXPECT_GT(outcome.decode.num_answered, 0);
  EXPECT_EQ(outcome.prefill.latency.count() + outcome.decode.latency.count(),
            outcome.prefill.send_delay.count() + outcome.decode.send_delay.count());
}

TEST_F(LoadSessionRunTest, RecreatedSessionsAreFilledAnew) {
  SessionLoad load = ClosedLoad(3);
  load.recreate = true;
  const LoadOutcome outcome = Run(load, {Lengths("uniform:10,30"), Lengths("fixed:2")});
  EXPECT_OK(outcome.first_failure);
  EXPECT_EQ(server_.num_truncated(), 0);
  EXPECT_GT(server_.num_created(), 3);
  EXPECT_EQ(server_.num_streams(), 3);
  EXPECT_GT(outcome.sessions.num_completed, 0);
  std::set<std::int64_t> first_lengths;
  for (const auto& [sequence, lengths] : LengthsOfLayer(server_.steps(), 0)) first_lengths.insert(lengths[0]);
  EXPECT_GT(first_lengths.size(), 1);
}

TEST_F(LoadSessionRunTest, AnOpenLoopPrefillsAndDecodesEverySession) {
  const SessionLoad load = OpenLoad(8, /*rate=*/50);
  const SessionMix mix = {Lengths("fixed:33"), Lengths("fixed:3")};
  LoadOutcome outcome = Run(load, mix);
  EXPECT_OK(outcome.first_failure);
  const std::int64_t num_sessions = SessionSchedule(load.timing, mix, 8, kSeed).CountUnsent();
  EXPECT_EQ(server_.num_created(), num_sessions);
  EXPECT_EQ(outcome.sessions.num_begun, num_sessions);
  EXPECT_EQ(outcome.sessions.num_completed, num_sessions);
  EXPECT_EQ(outcome.sessions.first_token.count(), num_sessions);
  EXPECT_EQ(outcome.num_unsent, 0);
  EXPECT_TRUE(server_.appends().empty());
  for (const auto& [sequence, lengths] : LengthsOfLayer(server_.steps(), 1)) {
    EXPECT_THAT(lengths, ElementsAre(16, 32, 33, 34, 35, 36)) << sequence;
  }
  EXPECT_EQ(outcome.prefill.num_answered, num_sessions * 3 * kLayers);
  EXPECT_EQ(outcome.decode.num_answered, num_sessions * 3 * kLayers);
  EXPECT_EQ(outcome.prefill.query_tokens, num_sessions * 33);
}

TEST_F(LoadSessionRunTest, ATraceIsPlayed) {
  SessionMix mix;
  mix.trace = {{0, 5, 2}, {0.05, 20, 0}, {0.1, 1, 1}, {0.7, 9, 9}};  // the last is beyond the end
  const LoadOutcome outcome = Run(OpenLoad(8, std::nullopt), mix);
  EXPECT_OK(outcome.first_failure);
  EXPECT_EQ(outcome.sessions.num_completed, 3);
  std::multiset<std::vector<std::int64_t>> sessions;
  for (const auto& [sequence, lengths] : LengthsOfLayer(server_.steps(), 0)) sessions.insert(lengths);
  EXPECT_THAT(sessions, ElementsAre(ElementsAre(1, 2), ElementsAre(5, 6, 7), ElementsAre(16, 20)));
}

// All but the first session wait for the only client, and count it.
TEST_F(LoadSessionRunTest, LatencyCountsTheWaitFromTheIntendedTime) {
  server_.before_step = [](std::int64_t step) {
    if (step == 0) absl::SleepFor(absl::Milliseconds(300));
    return grpc::Status::OK;
  };
  SessionMix mix;
  mix.trace = {{0, 1, 0}, {0.01, 1, 0}, {0.02, 1, 0}};
  LoadOutcome outcome = Run(OpenLoad(1, std::nullopt), mix);
  ASSERT_EQ(outcome.sessions.first_token.count(), 3);
  EXPECT_THAT(outcome.sessions.first_token.Summarize({1}).quantiles[0], Ge(0.27));
  EXPECT_GE(outcome.prefill.num_late, 2);
  EXPECT_THAT(outcome.prefill.send_delay.Summarize({1000}).quantiles[0], Ge(0.27));
}

TEST_F(LoadSessionRunTest, AFailedStepEndsItsSessionAndTheNextOneBegins) {
  server_.before_step = [](std::int64_t step) {
    return step % 50 == 49 ? grpc::Status(grpc::RESOURCE_EXHAUSTED, "the cache is full") : grpc::Status::OK;
  };
  const LoadOutcome outcome = Run(ClosedLoad(4), {Lengths("fixed:10"), Lengths("fixed:1000000")});
  EXPECT_OK(outcome.ended_by);
  EXPECT_THAT(outcome.first_failure, StatusIs(absl::StatusCode::kResourceExhausted, "the cache is full"));
  const LoadCounts& decode = outcome.decode;
  EXPECT_GT(decode.num_answered, 0);
  EXPECT_EQ(decode.num_failed(), FailuresWith(decode, absl::StatusCode::kResourceExhausted));
  EXPECT_GT(server_.num_created(), 4);
  EXPECT_LE(decode.num_failed(), server_.num_created() - 4);
}

TEST_F(LoadSessionRunTest, AWrongRequestEndsTheLoadAtOnce) {
  server_.before_step = [](std::int64_t) { return grpc::Status(grpc::INVALID_ARGUMENT, "query.shape"); };
  SessionLoad load = ClosedLoad(4);
  load.timing.duration_seconds = 86'400;
  EXPECT_THAT(Run(load, {Lengths("fixed:10"), Lengths("fixed:10")}).ended_by,
              StatusIs(absl::StatusCode::kInvalidArgument, "query.shape"));
}

TEST_F(LoadSessionRunTest, AContextThatCannotBeFilledEndsTheLoad) {
  server_.before_append = [](std::int64_t append) {
    return append == 5 ? grpc::Status(grpc::RESOURCE_EXHAUSTED, "no page is free") : grpc::Status::OK;
  };
  const LoadOutcome outcome = Run(ClosedLoad(8), {Lengths("fixed:10"), Lengths("fixed:10")});
  EXPECT_THAT(outcome.ended_by, StatusIs(absl::StatusCode::kResourceExhausted, "no page is free"));
  EXPECT_TRUE(server_.steps().empty());
}

TEST_F(LoadSessionRunTest, CancelledStepsAreNoFailures) {
  SessionLoad load = ClosedLoad(6);
  load.cancel_share = 0.2;
  const LoadOutcome outcome = Run(load, {Lengths("fixed:10"), Lengths("fixed:20")});
  EXPECT_OK(outcome.first_failure);
  EXPECT_GT(outcome.sessions.num_cancelled, 0);
  EXPECT_EQ(outcome.decode.num_failed(), 0);
  EXPECT_GT(server_.num_streams(), 6);
}

TEST_F(LoadSessionRunTest, AServerThatGoesAwayIsAFailureOfEveryClient) {
  client::ClientOptions options;
  options.retry.max_attempts = 1;
  std::vector<client::Client> channels;
  channels.push_back(*client::Client::Create("127.0.0.1:1", options));
  const SessionLoad load = ClosedLoad(3);
  SessionSchedule schedule(load.timing, {}, 3, kSeed);
  const SessionRequests requests((SessionGeometry()));
  const LoadOutcome outcome =
      RunSessions(channels, std::vector<std::string>{"kvCaches/a"}, load, requests, schedule, [](const SessionLoadState&) {});
  EXPECT_THAT(outcome.ended_by, StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace ridgeline::cli
