// A load of decode loops against a real daemon: many streams, prefill beside them, steps cancelled at random moments. Nothing
// may fail and nothing may be left behind.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "client/cli/load_session_run.h"
#include "client/cpp/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline {
namespace {

using cli::LengthDistribution;
using cli::LoadCounts;
using cli::LoadOutcome;
using cli::SessionLoad;
using cli::SessionMix;
using support::Daemon;

constexpr std::uint64_t kSeed = 20;
constexpr int kChannels = 8;
constexpr int kLayers = 2;

// Seconds of load of all tests here together.
double LoadSeconds() {
  double seconds = 60;
  const char* const wanted = std::getenv("RIDGELINE_LOAD_SECONDS");
  if (wanted != nullptr && (!absl::SimpleAtod(wanted, &seconds) || seconds <= 0)) std::abort();
  return seconds;
}

LengthDistribution Lengths(const std::string& text) { return *LengthDistribution::Parse("context", text); }

cli::SessionGeometry Geometry() {
  cli::SessionGeometry geometry;
  geometry.shape = *cli::ParseProblemShape("shapes", "1,24,200,6,2,16");
  geometry.layers = kLayers;
  geometry.page_tokens = 4;
  geometry.inline_output = true;
  return geometry;
}

class LoadTest : public ::testing::Test {
 protected:
  LoadTest() {
    client::ClientOptions options;
    options.retry.max_attempts = 1;
    options.own_connection = true;
    for (int i = 0; i < kChannels; ++i) channels_.push_back(*client::Client::Create(daemon_.unix_address(), options));
    allocated_bytes_ = channels_[0].GetMemoryStats()->allocated_bytes();
  }

  std::string CreateCache(std::int64_t capacity_pages) {
    const cli::SessionGeometry geometry = Geometry();
    v1::CreateKvCacheRequest request;
    v1::KvCache& cache = *request.mutable_kv_cache();
    cache.set_layers(geometry.layers);
    cache.set_kv_heads(static_cast<int>(geometry.shape.kv_heads));
    cache.set_head_dim(static_cast<int>(geometry.shape.head_dim));
    cache.set_data_type(geometry.type);
    cache.set_page_tokens(static_cast<int>(geometry.page_tokens));
    cache.set_capacity_pages(capacity_pages);
    return caches_.emplace_back(channels_[0].CreateKvCache(request)->name());
  }

  LoadOutcome Run(const SessionLoad& load, const SessionMix& mix) {
    const cli::SessionRequests requests(Geometry());
    cli::SessionSchedule schedule(load.timing, mix, load.num_clients, kSeed);
    return RunSessions(channels_, caches_, load, requests, schedule, [](const cli::SessionLoadState&) {});
  }

  void ExpectNothingLeft() {
    const client::Client& client = channels_[0];
    for (const std::string& cache : caches_) {
      v1::ListSequencesRequest list;
      list.set_parent(cache);
      EXPECT_EQ(client.ListSequences(list)->sequences_size(), 0);
      EXPECT_EQ(client.GetKvCache(cache)->used_pages(), 0);
      EXPECT_OK(client.DeleteKvCache(cache));
    }
    const v1::Load load = *client.GetLoad();
    EXPECT_EQ(load.kv_caches(), 0);
    EXPECT_EQ(load.used_kv_pages() + load.free_kv_pages(), 0);
    EXPECT_EQ(load.queued_requests() + load.running_requests(), 0);
    EXPECT_EQ(client.GetMemoryStats()->allocated_bytes(), allocated_bytes_);
    // With a sanitizer this finds what the process itself lost.
    channels_.clear();
    daemon_.process().Signal(SIGTERM);
    EXPECT_EQ(daemon_.process().Wait(absl::Seconds(60)), 0) << daemon_.process().standard_error();
  }

  Daemon daemon_;
  std::vector<client::Client> channels_;
  std::vector<std::string> caches_;
  std::int64_t allocated_bytes_ = 0;
};

void ExpectNoFailure(const LoadOutcome& outcome) {
  EXPECT_OK(outcome.ended_by);
  EXPECT_OK(outcome.first_failure);
  for (const LoadCounts* counts : {&outcome.prefill, &outcome.decode}) {
    EXPECT_GT(counts->num_answered, 0);
    EXPECT_EQ(counts->num_failed(), 0);
  }
}

TEST_F(LoadTest, DecodeLoopsWithPrefillAndCancelsLeaveNothingBehind) {
  constexpr int kClients = 96;
  CreateCache(kClients * 64);
  SessionLoad load;
  load.timing = {/*warm_up_seconds=*/1, LoadSeconds() * 2 / 3, /*drain_seconds=*/0, /*rate_per_second=*/std::nullopt};
  load.num_clients = kClients;
  load.cancel_share = 0.01;
  SessionMix mix;
  mix.context = Lengths("uniform:1,200");
  mix.decode_tokens = Lengths("uniform:1,40");
  mix.decode_share = 0.9;
  const LoadOutcome outcome = Run(load, mix);
  ExpectNoFailure(outcome);
  EXPECT_GT(outcome.sessions.num_completed, 0);
  EXPECT_GT(outcome.sessions.num_cancelled, 0);
  EXPECT_GT(outcome.decode.batch_requests, outcome.decode.num_answered) << "no two steps ever shared a launch";
  ExpectNothingLeft();
}

TEST_F(LoadTest, SessionsThatComeAndGoLeaveNothingBehind) {
  constexpr int kSessionsAtOnce = 64;
  for (int i = 0; i < 2; ++i) CreateCache(kSessionsAtOnce * 32);
  SessionLoad load;
  load.timing = {/*warm_up_seconds=*/0, LoadSeconds() / 3, /*drain_seconds=*/600, /*rate_per_second=*/20};
  load.num_clients = kSessionsAtOnce;
  load.cancel_share = 0.01;
  SessionMix mix;
  mix.context = Lengths("uniform:1,100");
  mix.decode_tokens = Lengths("uniform:1,20");
  const LoadOutcome outcome = Run(load, mix);
  ExpectNoFailure(outcome);
  EXPECT_EQ(outcome.num_unsent, 0);
  EXPECT_EQ(outcome.sessions.num_begun, outcome.sessions.num_completed + outcome.sessions.num_cancelled);
  ExpectNothingLeft();
}

}  // namespace
}  // namespace ridgeline
