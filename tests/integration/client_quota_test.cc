// Each client's share of the queue: who has it waits, whatever name it claims, and others come in.
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/integration/random_attend.h"
#include "tests/integration/tls_fixture.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::integration {
namespace {

using client::Client;
using support::Daemon;
using support::IsOk;
using support::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

v1::AttendRequest SmallRequest() { return DenseRequest(RandomTokens(3, 1), 1, 7); }

class ClientQuotaTest : public TlsFixture {
 protected:
  // While a request of alice's runs that takes long, another of hers is refused for this reason and bob's is answered.
  void ExpectAliceHasHerShare(const Daemon& daemon, const std::string& quota) {
    const Client alice = ConnectAs(daemon.tcp_address(), "alice", /*claim=*/"alice");
    client::AttendStream running = alice.OpenAttendStream();
    ASSERT_TRUE(running.Write(RandomAttend(support::LongTokens(), v1::ALGORITHM_FLASH)));
    while (alice.GetLoad()->running_requests() == 0) absl::SleepFor(absl::Milliseconds(1));

    const absl::Status refused = ConnectAs(daemon.tcp_address(), "alice", /*claim=*/"carol").Attend(SmallRequest()).status();
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the client has its share of the queue")));
    EXPECT_EQ(client::ErrorReason(refused), "QUOTA_EXCEEDED");
    EXPECT_TRUE(client::RetryDelay(refused).has_value());
    EXPECT_THAT(ConnectAs(daemon.tcp_address(), "bob", /*claim=*/"alice").Attend(SmallRequest()), IsOk());

    const std::string metrics = support::HttpRequest("GET", daemon.metrics_address(), "/metrics").body;
    EXPECT_THAT(metrics, HasSubstr("ridgeline_quota_refusals_total{quota=\"" + quota + "\"} 1\n"));
    EXPECT_THAT(metrics, Not(HasSubstr("alice"))) << "a name is no label";
  }
};

TEST_F(ClientQuotaTest, OfRequests) {
  Daemon daemon(FlagsForKnownClients({"--lanes=2", "--max_requests_per_client=1"}));
  ExpectAliceHasHerShare(daemon, "requests");
}

TEST_F(ClientQuotaTest, OfBytes) {
  Daemon daemon(FlagsForKnownClients({"--lanes=2", "--max_bytes_per_client=1"}));
  ExpectAliceHasHerShare(daemon, "bytes");
}

}  // namespace
}  // namespace ridgeline::integration
