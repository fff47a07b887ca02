// Signals under load: SIGTERM ends a daemon in order, SIGKILL at once, and the next one on the same address serves.
#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/resilience/crowd.h"
#include "tests/resilience/tally.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::resilience {
namespace {

using integration::Connect;
using support::Daemon;
using support::IsOk;
using support::StatusIs;
using ::testing::IsEmpty;

constexpr std::uint64_t kSeed = 9;
constexpr double kCallsPerSecond = 500;
constexpr absl::Duration kPatience = absl::Minutes(1);

const std::vector<std::string> kFlags = {"--lanes=2", "--threads=1", "--max_queued_requests=16"};

std::vector<std::string> FlagsToServeOn(const Daemon& before) {
  std::vector<std::string> flags = kFlags;
  flags.push_back(absl::StrCat("--listen=", before.unix_address(), ",", before.tcp_address()));
  return flags;
}

// Until the crowd has got so many more answers.
void AwaitAnswers(const Tally& tally, std::int64_t more) {
  const std::int64_t aim = tally.num_answered() + more;
  for (const absl::Time end = absl::Now() + kPatience; tally.num_answered() < aim;) {
    ASSERT_LT(absl::Now(), end) << "the crowd gets no answers";
    absl::SleepFor(absl::Milliseconds(5));
  }
}

class RestartTest : public ::testing::Test {
 protected:
  RestartTest() : daemon_(std::make_unique<Daemon>(kFlags)) {
    crowd_ = std::make_unique<Crowd>(CrowdOptions{daemon_->tcp_address(), kCallsPerSecond, kSeed}, tally_);
  }

  void ExpectNoOtherErrorsThan(const std::vector<std::string>& allowed) {
    for (const auto& [error, count] : tally_.unexpected()) {
      const auto is_it = [&error = error](const std::string& text) { return absl::StrContains(error, text); };
      EXPECT_TRUE(std::any_of(allowed.begin(), allowed.end(), is_it)) << count << " times: " << error;
    }
  }

  std::unique_ptr<Daemon> daemon_;
  Tally tally_;
  std::unique_ptr<Crowd> crowd_;
};

TEST_F(RestartTest, SigtermUnderLoadAnswersOrSaysUnavailable) {
  ASSERT_NO_FATAL_FAILURE(AwaitAnswers(tally_, 200));
  daemon_->process().Signal(SIGTERM);
  EXPECT_EQ(daemon_->process().Wait(kPatience), 0) << daemon_->process().standard_error();
  crowd_.reset();
  EXPECT_THAT(tally_.wrong(), IsEmpty());
  EXPECT_THAT(tally_.unexpected(), Not(IsEmpty()));
  // The latter is gRPC's own word to a call that comes while it closes the connections, and reaches no handler.
  ExpectNoOtherErrorsThan({"UNAVAILABLE", "CANCELLED: CANCELLED"});
}

TEST_F(RestartTest, SigkillUnderLoadAndTheNextDaemonOnTheSameAddressServes) {
  const client::Client before = Connect(daemon_->tcp_address());
  const auto cache = before.CreateKvCache(integration::CacheRequest("mine", /*capacity_pages=*/4));
  ASSERT_THAT(cache, IsOk());
  const client::Client in_session = Connect(daemon_->tcp_address(), "", cache->routing_token());
  ASSERT_THAT(in_session.CreateSequence(cache->name(), "a"), IsOk());
  ASSERT_NO_FATAL_FAILURE(AwaitAnswers(tally_, 200));

  daemon_->process().Signal(SIGKILL);
  EXPECT_EQ(daemon_->process().Wait(kPatience), 128 + SIGKILL);
  EXPECT_THAT(before.GetLoad(), StatusIs(absl::StatusCode::kUnavailable));
  const Daemon next(FlagsToServeOn(*daemon_));
  ASSERT_EQ(next.tcp_address(), daemon_->tcp_address());
  ASSERT_NO_FATAL_FAILURE(AwaitAnswers(tally_, 200));

  const absl::Status lost = in_session.GetSequence(absl::StrCat(cache->name(), "/sequences/a")).status();
  EXPECT_THAT(lost, StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(client::ErrorReason(lost), "KV_CACHE_LOST");
  EXPECT_EQ(client::ErrorReason(before.GetKvCache(cache->name()).status()), "KV_CACHE_NOT_FOUND");
  crowd_.reset();
  EXPECT_THAT(tally_.wrong(), IsEmpty());
  ExpectNoOtherErrorsThan({"UNAVAILABLE", "[KV_CACHE_LOST]"});
}

}  // namespace
}  // namespace ridgeline::resilience
