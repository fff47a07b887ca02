// Connections on which nothing more comes don't last.
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/resilience/rude_peers.h"
#include "tests/support/daemon.h"

namespace ridgeline::resilience {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

TEST(HalfOpenTest, AConnectionThatSaysNoMoreIsClosedWithThePeersTimeout) {
  const support::Daemon daemon({"--peer_timeout=1s"});
  std::vector<std::thread> threads;
  for (const std::string& beginning : Beginnings()) {
    threads.emplace_back([&daemon, beginning] {
      EXPECT_TRUE(IsClosedAfter(beginning, daemon.tcp_address(), kPatience)) << absl::CHexEscape(beginning);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ridgeline::resilience
