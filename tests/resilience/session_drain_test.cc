// A daemon that drains with sessions on it: they go on, new ones are refused, and it ends when the last has gone.
#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/integration/random_attend.h"
#include "tests/resilience/known_answer.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::resilience {
namespace {

using client::ErrorReason;
using integration::Connect;
using integration::RandomTokens;
using integration::Tokens;
using support::Daemon;
using support::IsOk;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(40);

// A session with a prompt, on a daemon of its own.
class SessionDrainTest : public ::testing::Test {
 protected:
  void Start(const std::string& timeout, std::optional<absl::Duration> lease = std::nullopt) {
    daemon_ = std::make_unique<Daemon>(std::vector<std::string>{absl::StrCat("--session_drain_timeout=", timeout)});
    client_ = std::make_unique<client::Client>(Connect(daemon_->unix_address()));
    v1::CreateKvCacheRequest request = integration::CacheRequest("mine", /*capacity_pages=*/16);
    if (lease.has_value()) request.mutable_kv_cache()->mutable_lease_duration()->set_seconds(absl::ToInt64Seconds(*lease));
    ASSERT_THAT(client_->CreateKvCache(request), IsOk());
    ASSERT_THAT(client_->CreateSequence("kvCaches/mine", "a"), IsOk());
    ASSERT_NO_FATAL_FAILURE(Step());
  }

  // Appends a token and attends; the answer has to be right.
  void Step() {
    const std::uint64_t seed = static_cast<std::uint64_t>(tokens_.size()) + 1;
    const Tokens added = RandomTokens(1, seed);
    const auto answer = client_->Attend(integration::StepRequest("kvCaches/mine/sequences/a", 0, added, seed));
    ASSERT_THAT(answer, IsOk());
    tokens_.Append(added);
    EXPECT_TRUE(KnownAnswer(integration::DenseRequest(tokens_, 1, seed)).IsRight(answer->output()));
  }

  void Terminate() {
    daemon_->process().Signal(SIGTERM);
    for (int i = 0; i < 2000 && ReadyCode() == 200; ++i) absl::SleepFor(absl::Milliseconds(5));
  }

  int ReadyCode() { return support::HttpRequest("GET", daemon_->metrics_address(), "/readyz").code; }
  int ExitStatus(absl::Duration patience = kPatience) { return daemon_->process().Wait(patience); }

  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<client::Client> client_;
  Tokens tokens_;
};

TEST_F(SessionDrainTest, SessionsGoOnNewOnesAreRefusedAndTheLastEndsIt) {
  ASSERT_NO_FATAL_FAILURE(Start("10m"));
  Terminate();
  EXPECT_EQ(ReadyCode(), 503);
  EXPECT_FALSE(client_->CheckHealth("").ok());
  EXPECT_TRUE(client_->GetLoad()->draining());
  EXPECT_EQ(ErrorReason(client_->Attend(RandomAttend(10)).status()), "DRAINING");
  EXPECT_EQ(ErrorReason(client_->CreateKvCache(integration::CacheRequest("more", 4)).status()), "DRAINING");
  v1::FuseRequest fuse;
  *fuse.mutable_softmax()->mutable_input() = integration::InlineTensor({1, 2}, {1, 2});
  EXPECT_EQ(ErrorReason(client_->Fuse(fuse).status()), "DRAINING");
  v1::BenchmarkRequest benchmark;
  benchmark.set_name("batch_size");
  EXPECT_EQ(ErrorReason(client_->Benchmark(benchmark, [](const auto&) { return absl::OkStatus(); })), "DRAINING");

  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_THAT(client_->ForkSequence("kvCaches/mine/sequences/a", "b"), IsOk());
  int num_parts = 0;
  EXPECT_THAT(client_->ExportSequence("kvCaches/mine/sequences/a",
                                      [&](const auto&) {
                                        ++num_parts;
                                        return absl::OkStatus();
                                      }),
              IsOk());
  EXPECT_GE(num_parts, 2);
  EXPECT_EQ(ExitStatus(absl::ZeroDuration()), -1) << "it serves";
  EXPECT_THAT(client_->DeleteKvCache("kvCaches/mine"), IsOk());
  EXPECT_EQ(ExitStatus(), 0) << daemon_->process().standard_error();
}

TEST_F(SessionDrainTest, TheEndOfTheLastLeaseEndsIt) {
  ASSERT_NO_FATAL_FAILURE(Start("10m", absl::Seconds(1)));
  Terminate();
  EXPECT_EQ(ExitStatus(), 0) << daemon_->process().standard_error();
}

TEST_F(SessionDrainTest, TheTimeoutEndsItAndTheLogSaysWhatItCutOff) {
  ASSERT_NO_FATAL_FAILURE(Start("100ms"));
  Terminate();
  EXPECT_EQ(ExitStatus(), 0);
  EXPECT_THAT(daemon_->process().standard_error(), HasSubstr("msg=\"sessions cut off\" kv_caches=1"));
}

TEST_F(SessionDrainTest, WithoutTheFlagSessionsGoAtOnce) {
  ASSERT_NO_FATAL_FAILURE(Start("0"));
  daemon_->process().Signal(SIGTERM);
  EXPECT_EQ(ExitStatus(), 0);
}

}  // namespace
}  // namespace ridgeline::resilience
