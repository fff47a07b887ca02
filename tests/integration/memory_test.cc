// The allocator's snapshots, its trim, its errors and plans, of a real daemon.
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "ridgeline/v1/attention.grpc.pb.h"
#include "tests/integration/random_attend.h"
#include "tests/support/daemon.h"
#include "tests/support/source_folder.h"
#include "tests/support/status_matchers.h"

namespace ridgeline {
namespace {

using client::Client;
using support::Daemon;
using support::IsOk;

Client Connect(const Daemon& daemon) { return *Client::Create(daemon.unix_address()); }

v1::AttendRequest Request(std::int64_t tokens, v1::Algorithm algorithm) {
  v1::AttendRequest request = RandomAttend(tokens, algorithm, /*heads=*/4, /*head_dim=*/32);
  request.mutable_output()->set_discard(true);
  return request;
}

// Python accepts the file as PyTorch's tools would; see there.
void ExpectPythonAccepts(const Daemon& daemon, const std::string& name, const std::string& bytes, int least_events) {
  const std::string path = absl::StrCat(daemon.folder(), "/", name);
  std::ofstream(path, std::ios::binary) << bytes;
  const std::string command =
      absl::StrCat("python3 ", support::SourceFolder().string(), "/tests/unit/api/check_snapshot.py ", path, " ", least_events);
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST(MemoryTest, SnapshotsNameTheRequestsAndTheirOperations) {
  Daemon daemon;
  const Client client = Connect(daemon);
  for (const std::int64_t tokens : {64, 300, 700}) {
    for (const auto algorithm : {v1::ALGORITHM_STANDARD, v1::ALGORITHM_FLASH}) {
      ASSERT_THAT(client.Attend(Request(tokens, algorithm)), IsOk());
    }
  }
  const auto snapshot = client.GetMemorySnapshot({});
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_GT(snapshot->segments_size(), 0);
  std::set<std::string> requests;
  for (const v1::MemoryEvent& event : snapshot->events()) {
    if (event.action() != v1::MEMORY_ACTION_ALLOCATE || event.operation().empty()) continue;
    EXPECT_EQ(event.operation(), "Attend");
    requests.insert(event.request_id());
  }
  EXPECT_EQ(requests.size(), 6u) << "each request has an id of its own";
  v1::GetMemorySnapshotRequest request;
  request.set_format(v1::MEMORY_SNAPSHOT_FORMAT_PICKLE);
  ExpectPythonAccepts(daemon, "memory.pickle", client.GetMemorySnapshot(request)->file(), 40);
  request.set_format(v1::MEMORY_SNAPSHOT_FORMAT_JSON);
  ExpectPythonAccepts(daemon, "memory.json", client.GetMemorySnapshot(request)->file(), 40);
}

TEST(MemoryTest, StatisticsHavePoolsAndTotals) {
  Daemon daemon;
  const Client client = Connect(daemon);
  ASSERT_THAT(client.Attend(Request(1000, v1::ALGORITHM_STANDARD)), IsOk());
  const auto stats = client.GetMemoryStats();
  ASSERT_THAT(stats, IsOk());
  EXPECT_GE(stats->large_pool().allocated_bytes().allocated(), 4 * 4 * 1000 * 1000) << "the scores";
  EXPECT_GT(stats->small_pool().allocation().allocated(), 0);
  EXPECT_EQ(stats->all().allocated_bytes().current(), stats->allocated_bytes());
  EXPECT_EQ(stats->all().allocated_bytes().allocated() - stats->all().allocated_bytes().freed(), stats->allocated_bytes());
  EXPECT_EQ(stats->promised_bytes(), 0) << "nothing runs";
}

TEST(MemoryTest, TrimGivesAllBackWhenNothingRuns) {
  Daemon daemon;
  const Client client = Connect(daemon);
  ASSERT_THAT(client.Attend(Request(1000, v1::ALGORITHM_STANDARD)), IsOk());
  for (int i = 0; i < 1000 && client.GetMemoryStats()->reserved_bytes() > 0; ++i) {
    ASSERT_THAT(client.EmptyMemoryCache(), IsOk());
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(client.GetMemoryStats()->reserved_bytes(), 0);
}

// A cache whose arena leaves no room: the error says in numbers what there is.
TEST(MemoryTest, OutOfMemoryCarriesTheNumbers) {
  Daemon daemon({"--memory_limit_bytes=100000000"});
  const auto channel = grpc::CreateChannel(daemon.unix_address(), grpc::InsecureChannelCredentials());
  const Client client = Connect(daemon);
  v1::CreateKvCacheRequest create;
  create.set_kv_cache_id("most");
  create.mutable_kv_cache()->set_layers(1);
  create.mutable_kv_cache()->set_kv_heads(1);
  create.mutable_kv_cache()->set_head_dim(64);
  create.mutable_kv_cache()->set_data_type(v1::DATA_TYPE_FLOAT32);
  create.mutable_kv_cache()->set_capacity_pages(9'000);  // 74 MB
  ASSERT_THAT(client.CreateKvCache(create), IsOk());
  grpc::ClientContext context;
  v1::AttendResponse response;
  const grpc::Status status = v1::AttentionService::NewStub(channel)->Attend(&context, Request(1500, v1::ALGORITHM_STANDARD),
                                                                             &response);  // 36 MB of scores
  ASSERT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "OUT_OF_MEMORY");
  for (const char* const name :
       {"requested_bytes", "allocated_bytes", "reserved_bytes", "limit_bytes", "promised_bytes", "largest_free_block_bytes"}) {
    EXPECT_EQ(info.metadata().count(name), 1u) << name;
  }
  EXPECT_EQ(info.metadata().at("limit_bytes"), "100000000");
  EXPECT_THAT(client.Attend(Request(500, v1::ALGORITHM_STANDARD)), IsOk()) << "what fits still runs";
}

TEST(MemoryTest, AFlagTurnsGrowthOff) {
  Daemon daemon({"--memory_growing_segments=false", "--memory_history_events=0"});
  const Client client = Connect(daemon);
  ASSERT_THAT(client.Attend(Request(100, v1::ALGORITHM_FLASH)), IsOk());
  const auto snapshot = client.GetMemorySnapshot({});
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(snapshot->events_size(), 0);
  ASSERT_GT(snapshot->segments_size(), 0);
  EXPECT_FALSE(snapshot->segments(0).growing());
}

TEST(MemoryTest, PlansFitThisDevice) {
  Daemon daemon({"--memory_limit_bytes=1000000000"});
  const Client client = Connect(daemon);
  v1::PlanMemoryRequest request;
  request.mutable_model()->set_layers(12);
  request.mutable_model()->set_hidden_size(768);
  request.mutable_model()->set_query_heads(12);
  const auto plan = client.PlanMemory(request);
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->memory_bytes(), 1'000'000'000);
  EXPECT_TRUE(plan->fits());
  EXPECT_GT(plan->terms_size(), 1);
  request.mutable_model()->set_layers(-1);
  const auto refused = client.PlanMemory(request);
  EXPECT_EQ(client::ErrorReason(refused.status()), "INVALID_FIELD");
}

}  // namespace
}  // namespace ridgeline
