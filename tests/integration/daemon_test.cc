// The daemon as a process: flags, logs, health, metrics, drain.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/random_attend.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline {
namespace {

using client::Client;
using support::Daemon;
using support::IsOk;
using support::Process;
using support::StatusIs;
using ::testing::HasSubstr;

constexpr const char* kServices[] = {"", "ridgeline.v1.AttentionService", "ridgeline.v1.BenchmarkService",
                                     "ridgeline.v1.DeviceService"};

Client Connect(const std::string& address) {
  client::ClientOptions options;
  options.timeout = absl::Minutes(1);
  options.retry.max_attempts = 1;
  return *Client::Create(address, options);
}

struct BadFlag {
  std::string flag;
  std::string named;  // in the error
};

TEST(FlagsTest, ABadValueEndsTheStartAndNamesTheFlag) {
  for (const BadFlag& bad : std::vector<BadFlag>{{"--lanes=0", "--lanes"},
                                                 {"--lanes=2000", "--lanes"},
                                                 {"--threads=-1", "--threads"},
                                                 {"--device=tpu", "--device"},
                                                 {"--device=cuda:", "--device"},
                                                 {"--device=cuda:-1", "--device"},
                                                 {"--device=cuda:999", "--device"},
                                                 {"--pinned_limit_bytes=-1", "--pinned_limit_bytes"},
                                                 {"--listen=nonsense", "--listen"},
                                                 {"--listen=", "--listen"},
                                                 {"--listen=127.0.0.1:99999", "--listen"},
                                                 {"--metrics_listen=1", "--metrics_listen"},
                                                 {"--max_message_bytes=0", "--max_message_bytes"},
                                                 {"--max_message_bytes=3000000000", "--max_message_bytes"},
                                                 {"--max_queued_requests=-1", "--max_queued_requests"},
                                                 {"--max_queued_bytes=0", "--max_queued_bytes"},
                                                 {"--max_requests_per_client=-1", "--max_requests_per_client"},
                                                 {"--max_bytes_per_client=-1", "--max_bytes_per_client"},
                                                 {"--max_streams_per_connection=0", "--max_streams_per_connection"},
                                                 {"--max_connection_age=0", "--max_connection_age"},
                                                 {"--memory_limit_bytes=-5", "--memory_limit_bytes"},
                                                 {"--memory_rounding_divisions=3", "--memory_rounding_divisions"},
                                                 {"--memory_rounding_divisions=128", "--memory_rounding_divisions"},
                                                 {"--memory_max_split_bytes=1000", "--memory_max_split_bytes"},
                                                 {"--memory_history_events=-1", "--memory_history_events"},
                                                 {"--log_level=loud", "--log_level"},
                                                 {"--log_format=xml", "--log_format"},
                                                 {"--peer_timeout=0", "--peer_timeout"},
                                                 {"--drain_timeout=-1s", "--drain_timeout"},
                                                 {"--session_drain_timeout=-1s", "--session_drain_timeout"}}) {
    Process process({support::DaemonProgram(), "--listen=127.0.0.1:0", "--metrics_listen=", bad.flag});
    EXPECT_EQ(process.Wait(absl::Seconds(20)), 1) << bad.flag;
    EXPECT_THAT(process.standard_error(), HasSubstr(bad.named)) << bad.flag;
  }
}

TEST(FlagsTest, AnAddressInUseEndsTheStartAndNamesTheFlag) {
  Daemon daemon;
  const std::pair<std::string, std::string> cases[] = {
      {absl::StrCat("--listen=", daemon.tcp_address()), "--listen"},
      {absl::StrCat("--listen=", daemon.unix_address()), "--listen"},
      {absl::StrCat("--listen=unix:/", std::string(200, 'x')), "--listen"},
      {absl::StrCat("--metrics_listen=", daemon.metrics_address()), "--metrics_listen"}};
  for (const auto& [flag, named] : cases) {
    Process process(
        {support::DaemonProgram(), "--listen=127.0.0.1:0", "--metrics_listen=", support::SharedRooflineFlag(), flag});
    EXPECT_EQ(process.Wait(absl::Seconds(30)), 1) << flag;
    EXPECT_THAT(process.standard_error(), HasSubstr(named)) << flag;
  }
  EXPECT_THAT(Connect(daemon.unix_address()).CheckHealth(""), IsOk()) << "the first daemon is unharmed";
}

TEST(FlagsTest, AStaleSocketFileIsReplaced) {
  Daemon first;
  const std::string address = first.unix_address();
  first.process().Signal(SIGKILL);
  first.process().Wait(absl::Seconds(10));
  ASSERT_TRUE(std::filesystem::exists(address.substr(5)));
  Daemon second({absl::StrCat("--listen=", address, ",127.0.0.1:0")});
  EXPECT_THAT(Connect(address).CheckHealth(""), IsOk());
}

TEST(LogTest, EveryLineIsKeysAndValues) {
  Daemon daemon;
  const std::vector<std::string> lines = absl::StrSplit(daemon.process().standard_error(), '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    EXPECT_TRUE(absl::StartsWith(line, "time=")) << line;
    EXPECT_THAT(line, HasSubstr(" level="));
    EXPECT_THAT(line, HasSubstr(" msg="));
  }
}

TEST(HealthTest, OverallAndEachService) {
  Daemon daemon;
  const Client client = Connect(daemon.tcp_address());
  for (const char* service : kServices) EXPECT_THAT(client.CheckHealth(service), IsOk()) << service;
  EXPECT_THAT(client.CheckHealth("ridgeline.v1.NoSuchService"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(DeviceTest, TellsWhatItIs) {
  Daemon daemon({"--lanes=3", "--memory_limit_bytes=1000000000"});
  const Client client = Connect(daemon.unix_address());
  const auto device = client.GetDevice();
  ASSERT_THAT(device, IsOk());
  EXPECT_EQ(device->type(), support::TestDevice() == "cpu" ? v1::DEVICE_TYPE_CPU : v1::DEVICE_TYPE_CUDA);
  EXPECT_EQ(device->lanes(), 3);
  EXPECT_EQ(device->memory_limit_bytes(), 1'000'000'000);
  EXPECT_FALSE(device->instance_id().empty());
  const auto roofline = client.GetRoofline();
  ASSERT_THAT(roofline, IsOk());
  EXPECT_GT(roofline->bytes_per_second(), 0);
  EXPECT_EQ(roofline->compute_roofs_size(), 3);
}

// An answer's memory is the daemon's until the transport lets go of it, which may be after the client has read it.
void AwaitNothingAllocated(const Client& client) {
  const absl::Time end = absl::Now() + absl::Seconds(30);
  auto stats = client.GetMemoryStats();
  while (stats.ok() && stats->allocated_bytes() > 0 && absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(1));
    stats = client.GetMemoryStats();
  }
  ASSERT_THAT(stats, IsOk());
  ASSERT_EQ(stats->allocated_bytes(), 0);
}

TEST(DeviceTest, MemoryIsCountedResetAndGivenBack) {
  Daemon daemon;
  const Client client = Connect(daemon.unix_address());
  ASSERT_THAT(client.Attend(RandomAttend(100)), IsOk());
  const auto used = client.GetMemoryStats();
  ASSERT_THAT(used, IsOk());
  EXPECT_GT(used->peak_allocated_bytes(), 0);
  EXPECT_GT(used->reserved_bytes(), 0);
  ASSERT_NO_FATAL_FAILURE(AwaitNothingAllocated(client));
  EXPECT_THAT(client.EmptyMemoryCache(), IsOk());
  EXPECT_THAT(client.ResetPeakMemoryStats(), IsOk());
  const auto emptied = client.GetMemoryStats();
  ASSERT_THAT(emptied, IsOk());
  EXPECT_EQ(emptied->reserved_bytes(), 0);
  EXPECT_EQ(emptied->peak_allocated_bytes(), 0);
}

TEST(DrainTest, AdmittedWorkIsAnsweredAndTheExitIsClean) {
  Daemon daemon({"--lanes=1"});
  std::atomic<int> answered = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      if (Connect(daemon.unix_address()).Attend(RandomAttend(12'000)).ok()) ++answered;
    });
  }
  // All four are in, one of them on the lane.
  const auto admitted = [&] {
    return support::HttpRequest("GET", daemon.metrics_address(), "/metrics").body.find("ridgeline_queue_requests 3") !=
           std::string::npos;
  };
  for (int i = 0; i < 500 && !admitted(); ++i) absl::SleepFor(absl::Milliseconds(5));
  daemon.process().Signal(SIGTERM);
  bool saw_not_ready = false;
  for (int i = 0; i < 200 && !saw_not_ready; ++i) {
    saw_not_ready = support::HttpRequest("GET", daemon.metrics_address(), "/readyz").code == 503;
    absl::SleepFor(absl::Milliseconds(2));
  }
  EXPECT_TRUE(saw_not_ready);
  const Client late = Connect(daemon.unix_address());
  EXPECT_FALSE(late.CheckHealth("").ok());
  EXPECT_THAT(late.Attend(RandomAttend(10)), StatusIs(absl::StatusCode::kUnavailable));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(daemon.process().Wait(absl::Seconds(40)), 0) << daemon.process().standard_error();
  EXPECT_EQ(answered, 4);
}

TEST(DrainTest, WorkThatDoesNotFinishInTimeIsCancelled) {
  Daemon daemon({"--drain_timeout=100ms"});
  std::thread caller([&] { EXPECT_FALSE(Connect(daemon.unix_address()).Attend(RandomAttend(support::LongTokens())).ok()); });
  absl::SleepFor(absl::Milliseconds(300));
  daemon.process().Signal(SIGTERM);
  EXPECT_EQ(daemon.process().Wait(absl::Seconds(30)), 1);
  caller.join();
}

TEST(DrainTest, ASecondSignalEndsAtOnce) {
  Daemon daemon;
  std::thread caller([&] { EXPECT_FALSE(Connect(daemon.unix_address()).Attend(RandomAttend(support::LongTokens())).ok()); });
  absl::SleepFor(absl::Milliseconds(300));
  daemon.process().Signal(SIGTERM);
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(daemon.process().Wait(absl::ZeroDuration()), -1) << "it drains";
  daemon.process().Signal(SIGTERM);
  EXPECT_EQ(daemon.process().Wait(absl::Seconds(5)), 1);
  caller.join();
}

}  // namespace
}  // namespace ridgeline
