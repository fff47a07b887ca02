#include "client/cpp/client.h"

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/wire_error.h"

namespace ridgeline::client {
namespace {

using support::IsOk;
using support::StatusIs;
using ::testing::HasSubstr;

ClientOptions QuickOptions() {
  ClientOptions options;
  options.timeout = absl::Seconds(30);
  options.retry.initial_backoff = absl::Milliseconds(2);
  return options;
}

Client Connect(const FakeServer& server, ClientOptions options = QuickOptions()) {
  return *Client::Create(server.address(), std::move(options));
}

// Answers with the query, so that a test can tell one answer from another.
grpc::Status Echo(const grpc::ServerContext&, const v1::AttendRequest& request, v1::AttendResponse* response) {
  *response->mutable_output() = request.query();
  return grpc::Status::OK;
}

// Fails the first calls with one status, then echoes.
struct FailFirst {
  FailFirst(int calls, grpc::Status failure) : num_failures(calls), status(std::move(failure)) {}

  grpc::Status operator()(const grpc::ServerContext& context, const v1::AttendRequest& request, v1::AttendResponse* response) {
    return num_calls++ < num_failures ? status : Echo(context, request, response);
  }

  const int num_failures;
  const grpc::Status status;
  std::atomic<int> num_calls = 0;
};

v1::AttendRequest RequestWithSeed(std::uint64_t seed) {
  v1::AttendRequest request;
  request.mutable_query()->mutable_random()->set_seed(seed);
  return request;
}

TEST(ClientTest, RefusesAddressesAndNamesThatCannotBe) {
  for (const std::string address : {"", "localhost", "unix:", ":50051", "host:"}) {
    EXPECT_THAT(Client::Create(address).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("host:port")))
        << address;
  }
  for (const std::string name : {"two\nlines", " padded", "µ"}) {
    ClientOptions options;
    options.name = name;
    EXPECT_THAT(Client::Create("127.0.0.1:1", options).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("printable")))
        << name;
  }
}

TEST(ClientTest, SharesAConnectionUnlessItIsToHaveItsOwn) {
  FakeServer server;
  std::string peer;
  server.attend = [&](const grpc::ServerContext& context, const v1::AttendRequest&, v1::AttendResponse*) {
    peer = context.peer();
    return grpc::Status::OK;
  };
  ClientOptions own = QuickOptions();
  own.own_connection = true;
  const Client clients[] = {Connect(server), Connect(server), Connect(server, own), Connect(server, own)};
  std::vector<std::string> peers;
  for (const Client& client : clients) {
    ASSERT_OK(client.Attend({}));
    peers.push_back(peer);
  }
  EXPECT_EQ(peers[0], peers[1]);
  EXPECT_NE(peers[0], peers[2]);
  EXPECT_NE(peers[2], peers[3]);
}

TEST(ClientTest, NamesItselfAndSetsADeadline) {
  FakeServer server;
  std::string name;
  absl::Duration time_left;
  server.attend = [&](const grpc::ServerContext& context, const v1::AttendRequest&, v1::AttendResponse*) {
    const auto entry = context.client_metadata().find("x-ridgeline-client");
    if (entry != context.client_metadata().end()) name = std::string(entry->second.data(), entry->second.size());
    time_left = absl::FromChrono(context.deadline()) - absl::Now();
    return grpc::Status::OK;
  };
  ClientOptions options = QuickOptions();
  options.name = "a test";
  ASSERT_OK(Connect(server, options).Attend({}));
  EXPECT_EQ(name, "a test");
  EXPECT_GT(time_left, absl::Seconds(10));
  EXPECT_LE(time_left, absl::Seconds(31));  // the server rounds up what it was told
}

TEST(ClientTest, RetriesUntilTheServerIsAvailable) {
  FakeServer server;
  FailFirst handler(3, grpc::Status(grpc::UNAVAILABLE, "draining"));
  server.attend = std::ref(handler);
  ASSERT_OK_AND_ASSIGN(const v1::AttendResponse response, Connect(server).Attend(RequestWithSeed(7)));
  EXPECT_EQ(response.output().random().seed(), 7);
  EXPECT_EQ(handler.num_calls, 4);
}

TEST(ClientTest, GivesUpAfterTheLastAttempt) {
  FakeServer server;
  FailFirst handler(100, grpc::Status(grpc::UNAVAILABLE, "draining"));
  server.attend = std::ref(handler);
  EXPECT_THAT(Connect(server).Attend({}).status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("draining")));
  EXPECT_EQ(handler.num_calls, QuickOptions().retry.max_attempts);
}

TEST(ClientTest, AFullQueueIsRetriedWhenTheServerSaysWhen) {
  FakeServer server;
  FailFirst handler(1, grpc::Status(grpc::RESOURCE_EXHAUSTED, "queue is full", WireDetails(RetryAfter(20))));
  server.attend = std::ref(handler);
  const absl::Time start = absl::Now();
  ASSERT_OK(Connect(server).Attend({}));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(20));
  EXPECT_EQ(handler.num_calls, 2);
}

TEST(ClientTest, FullMemoryIsNotRetried) {
  FakeServer server;
  FailFirst handler(1, grpc::Status(grpc::RESOURCE_EXHAUSTED, "out of memory", WireDetails(InfoWithReason("OUT_OF_MEMORY"))));
  server.attend = std::ref(handler);
  const absl::Status status = Connect(server).Attend({}).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, "out of memory [OUT_OF_MEMORY]"));
  EXPECT_EQ(ErrorReason(status), "OUT_OF_MEMORY");
  EXPECT_EQ(handler.num_calls, 1);
}

// An append whose answer was lost may have happened.
TEST(ClientTest, AppendsAreNeverSentTwice) {
  FakeServer server;
  FailFirst handler(1, grpc::Status(grpc::UNAVAILABLE, "connection lost"));
  server.attend = std::ref(handler);
  v1::AttendRequest request;
  request.mutable_paged()->mutable_new_key();
  EXPECT_THAT(Connect(server).Attend(request).status(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(handler.num_calls, 1);

  int num_calls = 0;
  server.fuse = [&num_calls](const v1::FuseRequest&, v1::FuseResponse*) {
    return ++num_calls % 2 == 1 ? grpc::Status(grpc::UNAVAILABLE, "connection lost") : grpc::Status::OK;
  };
  v1::FuseRequest fuse;
  fuse.mutable_softmax();
  EXPECT_THAT(Connect(server).Fuse(fuse), IsOk());
  EXPECT_EQ(num_calls, 2) << "what changes nothing is tried again";
  fuse.mutable_rope_append();
  EXPECT_THAT(Connect(server).Fuse(fuse).status(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(num_calls, 3);
}

TEST(ClientTest, TheDeadlineEndsACall) {
  FakeServer server;
  server.attend = [](const grpc::ServerContext& context, const v1::AttendRequest&, v1::AttendResponse*) {
    while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    return grpc::Status::CANCELLED;
  };
  ClientOptions options = QuickOptions();
  options.timeout = absl::Milliseconds(50);
  EXPECT_THAT(Connect(server, options).Attend({}).status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(ClientTest, FieldViolationsAreReadable) {
  FakeServer server;
  server.attend = [](const grpc::ServerContext&, const v1::AttendRequest&, v1::AttendResponse*) {
    return grpc::Status(grpc::INVALID_ARGUMENT, "heads is 0", WireDetails(BadField("query.shape", "heads is 0")));
  };
  EXPECT_EQ(ErrorString(Connect(server).Attend({}).status()), "INVALID_ARGUMENT: query.shape: heads is 0");
}

TEST(ClientTest, MessagesMayBeLargerThanTheDefaultLimitBothWays) {
  FakeServer server;
  server.attend = Echo;
  v1::AttendRequest request;
  request.mutable_query()->set_inline_data(std::string(9 << 20, 'x'));
  ASSERT_OK_AND_ASSIGN(const v1::AttendResponse response, Connect(server).Attend(request));
  EXPECT_EQ(response.output().inline_data().size(), 9 << 20);
}

TEST(ClientTest, ReadsTheDeviceItsMemoryAndItsRoofline) {
  FakeServer server;
  server.device.set_name("a device");
  server.memory_stats.set_allocated_bytes(5);
  server.roofline.set_bytes_per_second(2e9);
  const Client client = Connect(server);
  EXPECT_EQ(client.GetDevice()->name(), "a device");
  EXPECT_EQ(client.GetMemoryStats()->allocated_bytes(), 5);
  EXPECT_EQ(client.GetRoofline()->bytes_per_second(), 2e9);
  EXPECT_EQ(client.EmptyMemoryCache()->released_bytes(), 4096);
  EXPECT_OK(client.ResetPeakMemoryStats());
  EXPECT_EQ(server.num_resets(), 1);
}

TEST(ClientTest, Health) {
  FakeServer server;
  const Client client = Connect(server);
  EXPECT_OK(client.CheckHealth(""));
  EXPECT_THAT(client.CheckHealth("no.such.Service"), StatusIs(absl::StatusCode::kNotFound));
  server.health().SetServingStatus("ridgeline.v1.AttentionService", false);
  EXPECT_THAT(client.CheckHealth("ridgeline.v1.AttentionService"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "ridgeline.v1.AttentionService is not serving"));
}

TEST(AttendStreamTest, AnswersComeInOrder) {
  FakeServer server;
  server.attend = Echo;
  const Client client = Connect(server);
  AttendStream stream = client.OpenAttendStream();
  constexpr std::uint64_t kNumRequests = 200;
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kNumRequests; ++i) EXPECT_TRUE(stream.Write(RequestWithSeed(i)));
    stream.WritesDone();
  });
  v1::AttendResponse response;
  for (std::uint64_t i = 0; i < kNumRequests; ++i) {
    ASSERT_TRUE(stream.Read(&response));
    EXPECT_EQ(response.output().random().seed(), i);
  }
  EXPECT_FALSE(stream.Read(&response));
  writer.join();
  EXPECT_OK(stream.Finish());
}

TEST(AttendStreamTest, AFailureEndsTheStreamAfterTheAnswersBeforeIt) {
  FakeServer server;
  server.attend = [](const grpc::ServerContext& context, const v1::AttendRequest& request, v1::AttendResponse* response) {
    if (request.query().random().seed() < 2) return Echo(context, request, response);
    return grpc::Status(grpc::INVALID_ARGUMENT, "query is missing", WireDetails(InfoWithReason("INVALID_FIELD")));
  };
  AttendStream stream = Connect(server).OpenAttendStream();
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(stream.Write(RequestWithSeed(i)));
  v1::AttendResponse response;
  EXPECT_TRUE(stream.Read(&response));
  EXPECT_TRUE(stream.Read(&response));
  EXPECT_FALSE(stream.Read(&response));
  EXPECT_THAT(stream.Finish(), StatusIs(absl::StatusCode::kInvalidArgument, "query is missing [INVALID_FIELD]"));
}

TEST(AttendStreamTest, FinishDropsWhatWasNotRead) {
  FakeServer server;
  server.attend = Echo;
  AttendStream stream = Connect(server).OpenAttendStream();
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(stream.Write(RequestWithSeed(i)));
  EXPECT_OK(stream.Finish());
}

TEST(AttendStreamTest, AbandoningAStreamCancelsIt) {
  FakeServer server;
  absl::Notification started, cancelled;
  server.attend = [&](const grpc::ServerContext& context, const v1::AttendRequest&, v1::AttendResponse*) {
    started.Notify();
    while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    cancelled.Notify();
    return grpc::Status::CANCELLED;
  };
  {
    AttendStream stream = Connect(server).OpenAttendStream();
    ASSERT_TRUE(stream.Write({}));
    started.WaitForNotification();  // a stream cancelled earlier may never reach the handler
  }
  EXPECT_TRUE(cancelled.WaitForNotificationWithTimeout(absl::Seconds(30)));
}

TEST(AttendStreamTest, TheTimeoutIsForTheWholeStream) {
  FakeServer server;
  server.attend = Echo;
  AttendStream stream = Connect(server).OpenAttendStream(absl::Milliseconds(50));
  v1::AttendResponse response;
  EXPECT_FALSE(stream.Read(&response));
  EXPECT_THAT(stream.Finish(), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

}  // namespace
}  // namespace ridgeline::client
