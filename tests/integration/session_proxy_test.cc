// Sessions over several nodes, behind HAProxy as deploy/haproxy configures it: nodes come, drain and die, the proxy is
// reloaded.
#include <signal.h>

#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/integration/session_fleet.h"
#include "tests/support/daemon.h"
#include "tests/support/session_proxy.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::integration {
namespace {

using support::Daemon;
using support::IsOk;
using support::SessionProxy;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using Sessions = std::vector<std::shared_ptr<Session>>;

constexpr int kNodes = 3;
constexpr int kSessions = 240;
constexpr int kMoreSessions = 60;

const std::vector<std::string> kDaemonFlags = {"--threads=1", "--lanes=2", "--session_drain_timeout=2m"};

std::string InstanceOf(const Daemon& daemon) { return Connect(daemon.unix_address()).GetDevice()->instance_id(); }

// Each session's daemon, by the session's place in the fleet.
std::vector<std::string> InstancesOf(const Sessions& sessions) {
  std::vector<std::string> instances;
  for (const auto& session : sessions) instances.push_back(session->instance());
  return instances;
}

class SessionProxyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (support::ProxyProgram().empty()) GTEST_SKIP() << "no HAProxy (Debian package haproxy)";
    for (int i = 0; i < kNodes; ++i) AddDaemon();
    proxy_ = std::make_unique<SessionProxy>(std::vector<Daemon*>{nodes_[0].get(), nodes_[1].get(), nodes_[2].get()});
    fleet_ = std::make_unique<SessionFleet>(proxy_->address());
  }

  void AddDaemon() {
    nodes_.push_back(std::make_unique<Daemon>(kDaemonFlags));
    instances_.push_back(InstanceOf(*nodes_.back()));
  }

  // Times that a session was told that it had lost its cache, by the instance that had it.
  std::map<std::string, std::size_t> Losses() const {
    std::map<std::string, std::size_t> losses;
    for (const auto& session : fleet_->sessions()) {
      for (const std::string& instance : session->lost_instances()) ++losses[instance];
    }
    return losses;
  }

  // Half of the sessions move, by export and import; of the others the leases end.
  void MoveOrLeave(const Sessions& sessions) {
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      EXPECT_THAT(i % 2 == 0 ? sessions[i]->Move() : sessions[i]->Leave(absl::Seconds(1)), IsOk());
    }
  }

  std::vector<std::unique_ptr<Daemon>> nodes_;
  std::vector<std::string> instances_;  // of nodes_
  std::unique_ptr<SessionProxy> proxy_;
  std::unique_ptr<SessionFleet> fleet_;
};

// Prints the figures that deploy/haproxy/README.md quotes.
TEST_F(SessionProxyTest, NodesComeDrainAndDieAndNoOtherSessionMoves) {
  const absl::Time start = absl::Now();
  ASSERT_NO_FATAL_FAILURE(fleet_->Begin(kSessions));
  ASSERT_NO_FATAL_FAILURE(fleet_->AwaitSteps(2));
  for (const std::string& instance : instances_) EXPECT_THAT(fleet_->SessionsOn(instance), Not(IsEmpty()));
  const std::vector<std::string> at_first = InstancesOf(fleet_->sessions());

  // The proxy is reloaded; then it dies, and the next one has to learn which node is which.
  proxy_->Reload();
  ASSERT_NO_FATAL_FAILURE(fleet_->AwaitSteps(2));
  EXPECT_THAT(Losses(), IsEmpty());
  proxy_->Restart();
  ASSERT_NO_FATAL_FAILURE(fleet_->AwaitSteps(2));
  EXPECT_THAT(Losses(), IsEmpty());

  // A node comes: it gets new sessions, and none that was elsewhere.
  AddDaemon();
  proxy_->AddNode("node4", *nodes_[3]);
  ASSERT_NO_FATAL_FAILURE(fleet_->Begin(kMoreSessions));
  ASSERT_NO_FATAL_FAILURE(fleet_->AwaitSteps(2));
  EXPECT_THAT(Losses(), IsEmpty());
  EXPECT_THAT(fleet_->SessionsOn(instances_[3]), Not(IsEmpty()));
  Sessions old = fleet_->sessions();
  old.resize(kSessions);
  EXPECT_EQ(InstancesOf(old), at_first);

  // A node drains: it gets nothing new, and serves what it has.
  proxy_->Command("set server nodes/node1 state drain");
  const Sessions drained = fleet_->SessionsOn(instances_[0]);
  ASSERT_NO_FATAL_FAILURE(fleet_->Begin(kMoreSessions));
  ASSERT_NO_FATAL_FAILURE(fleet_->AwaitSteps(2));
  EXPECT_EQ(fleet_->SessionsOn(instances_[0]).size(), drained.size());
  EXPECT_THAT(Losses(), IsEmpty());
  MoveOrLeave(drained);
  EXPECT_THAT(fleet_->SessionsOn(instances_[0]), IsEmpty());
  const client::Client drained_node = Connect(nodes_[0]->unix_address());
  for (int i = 0; i < 1000 && drained_node.GetLoad()->kv_caches() > 0; ++i) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(drained_node.GetLoad()->kv_caches(), 0);
  nodes_[0]->process().Signal(SIGTERM);
  EXPECT_EQ(nodes_[0]->process().Wait(absl::Seconds(40)), 0);
  ASSERT_NO_FATAL_FAILURE(fleet_->AwaitSteps(2));
  EXPECT_THAT(Losses(), IsEmpty());

  // A node dies: its sessions, and no others, are told, and begin again elsewhere.
  const Sessions bereft = fleet_->SessionsOn(instances_[1]);
  ASSERT_THAT(bereft, Not(IsEmpty()));
  nodes_[1]->process().Signal(SIGKILL);
  ASSERT_NO_FATAL_FAILURE(fleet_->AwaitSteps(3));
  EXPECT_THAT(Losses(), ElementsAre(Pair(instances_[1], bereft.size())));
  EXPECT_THAT(fleet_->SessionsOn(instances_[1]), IsEmpty());

  const SessionCounts& counts = fleet_->counts();
  EXPECT_EQ(counts.wrong, 0);
  std::map<std::string, std::size_t> moved = Losses();
  const std::size_t num_told = moved[instances_[1]];
  moved.erase(instances_[1]);
  std::cout << "sessions " << fleet_->sessions().size() << ", steps " << counts.steps << ", wrong answers " << counts.wrong
            << "; of the drained node " << drained.size() << ", exported and imported " << (drained.size() + 1) / 2
            << "; of the killed node " << bereft.size() << ", told so and prefilled again " << num_told
            << "; others that lost their node " << moved.size() << "; calls that got UNAVAILABLE " << counts.interrupted << "; "
            << absl::ToInt64Seconds(absl::Now() - start) << " s\n";
}

// As a supervisor ends it, without a word to the proxy.
TEST_F(SessionProxyTest, ASignalDrainsANodeAndItEndsWithItsLastSession) {
  constexpr int kFewSessions = 60;
  ASSERT_NO_FATAL_FAILURE(fleet_->Begin(kFewSessions));
  const Sessions drained = fleet_->SessionsOn(instances_[0]);
  ASSERT_THAT(drained, Not(IsEmpty()));
  nodes_[0]->process().Signal(SIGTERM);
  for (int i = 0; i < 1000 && proxy_->IsUp("node1"); ++i) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(proxy_->IsUp("node1"));

  ASSERT_NO_FATAL_FAILURE(fleet_->Begin(kFewSessions));
  ASSERT_NO_FATAL_FAILURE(fleet_->AwaitSteps(2));
  EXPECT_EQ(fleet_->SessionsOn(instances_[0]).size(), drained.size());
  EXPECT_EQ(nodes_[0]->process().Wait(absl::ZeroDuration()), -1) << "it serves the sessions that it has";
  MoveOrLeave(drained);
  EXPECT_EQ(nodes_[0]->process().Wait(absl::Seconds(40)), 0) << nodes_[0]->process().standard_error();
  ASSERT_NO_FATAL_FAILURE(fleet_->AwaitSteps(2));
  EXPECT_THAT(Losses(), IsEmpty());
  EXPECT_EQ(fleet_->counts().wrong, 0);
}

}  // namespace
}  // namespace ridgeline::integration
