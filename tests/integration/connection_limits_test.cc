// What one peer may cost the daemon, on a real socket: it is bounded or hung up on, and others are served meanwhile.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "ridgeline/v1/attention.grpc.pb.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/integration/raw_http2.h"
#include "tests/integration/tls_fixture.h"
#include "tests/support/certificates.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::integration {
namespace {

using client::Client;
using support::Daemon;
using support::IsOk;
using support::StatusIs;
using ::testing::AnyOf;
using ::testing::Eq;

constexpr char kAttendStream[] = "/ridgeline.v1.AttentionService/AttendStream";
constexpr absl::Duration kLongest = absl::Seconds(60);  // after which a test gives up

v1::AttendRequest SmallRequest() { return DenseRequest(RandomTokens(3, 1), 1, 7); }

// A connection of its own, whose calls wait so long.
Client ConnectFor(const std::string& address, absl::Duration timeout) {
  client::ClientOptions options;
  options.timeout = timeout;
  options.retry.max_attempts = 1;
  options.own_connection = true;
  return *Client::Create(address, options);
}

void ExpectServesOthers(const Daemon& daemon) {
  EXPECT_THAT(ConnectFor(daemon.tcp_address(), kLongest).Attend(SmallRequest()), IsOk());
}

// ---- Streams ----------------------------------------------------------------------------------------------------------------

TEST(ConnectionLimitsTest, StreamsBeyondTheLimitWait) {
  constexpr int kLimit = 3;
  Daemon daemon({absl::StrCat("--max_streams_per_connection=", kLimit)});
  const Client greedy = ConnectFor(daemon.tcp_address(), absl::Seconds(2));
  std::vector<client::AttendStream> streams;
  for (int i = 0; i < kLimit; ++i) {
    streams.push_back(greedy.OpenAttendStream());
    v1::AttendResponse response;
    ASSERT_TRUE(streams.back().Write(SmallRequest()) && streams.back().Read(&response));
  }
  EXPECT_THAT(greedy.GetLoad(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  ExpectServesOthers(daemon);
  EXPECT_THAT(streams.back().Finish(), IsOk());
  EXPECT_THAT(greedy.GetLoad(), IsOk());
}

TEST(ConnectionLimitsTest, WhoOpensMoreStreamsAllTheSameIsHungUpOn) {
  constexpr int kLimit = 3;
  Daemon daemon({absl::StrCat("--max_streams_per_connection=", kLimit)});
  RawHttp2 peer(daemon.tcp_address());
  peer.SayHello();
  peer.Send(Frame(kSettingsFrame, /*flags=*/1, 0, ""));  // it has heard of the server's
  for (std::uint32_t i = 0; i < 2 * kLimit; ++i) peer.Send(BeginCall(2 * i + 1, kAttendStream));
  EXPECT_TRUE(peer.AwaitClose(kLongest));
  ExpectServesOthers(daemon);
}

TEST(ConnectionLimitsTest, StreamsOpenedAndResetAtOnceKeepNobodyOut) {
  Daemon daemon;
  RawHttp2 peer(daemon.tcp_address());
  peer.SayHello();
  const std::string cancel("\0\0\0\x8", 4);
  std::uint32_t stream = 1;
  for (int i = 0; i < 20'000; ++i, stream += 2) {
    if (!peer.Send(BeginCall(stream, kAttendStream) + Frame(kResetStreamFrame, 0, stream, cancel))) break;
    if (i % 5'000 == 0) ExpectServesOthers(daemon);
  }
  ExpectServesOthers(daemon);
}

// A call of any method, which sends nothing and stays open until it is cancelled.
class OpenCall : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  OpenCall(grpc::GenericStub& stub, const std::string& method, std::atomic<int>& num_refused) : num_refused_(num_refused) {
    stub.PrepareBidiStreamingCall(&context_, method, {}, this);
    StartCall();
    StartRead(&answer_);
  }

  void Cancel() { context_.TryCancel(); }
  bool has_ended() const { return has_ended_; }

  void OnDone(const grpc::Status& status) override {
    if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) ++num_refused_;
    has_ended_ = true;
  }

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer answer_;
  std::atomic<int>& num_refused_;
  std::atomic<bool> has_ended_ = false;
};

TEST(ConnectionLimitsTest, CallsOfReflectionTakeNoMoreThreadsThanThereAre) {
  constexpr int kCalls = 100;
  Daemon daemon;
  grpc::GenericStub stub(grpc::CreateChannel(daemon.tcp_address(), grpc::InsecureChannelCredentials()));
  std::atomic<int> num_refused = 0;
  std::vector<std::unique_ptr<OpenCall>> calls;
  for (int i = 0; i < kCalls; ++i) {
    calls.push_back(
        std::make_unique<OpenCall>(stub, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", num_refused));
  }
  const absl::Time end = absl::Now() + kLongest;
  while (num_refused < kCalls - 16 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_GE(num_refused, kCalls - 16);
  EXPECT_LT(num_refused, kCalls) << "some are there to be served";
  ExpectServesOthers(daemon);
  for (const auto& call : calls) call->Cancel();
  for (const auto& call : calls) {
    while (!call->has_ended()) absl::SleepFor(absl::Milliseconds(1));
  }
}

// ---- Bytes ------------------------------------------------------------------------------------------------------------------

TEST(ConnectionLimitsTest, CompressedMessagesAreNotUnpacked) {
  Daemon daemon({"--max_message_bytes=1048576"});
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  const auto stub = v1::AttentionService::NewStub(
      grpc::CreateCustomChannel(daemon.tcp_address(), grpc::InsecureChannelCredentials(), arguments));
  v1::AttendRequest bomb;
  bomb.mutable_query()->set_inline_data(std::string(std::size_t{64} << 20, '\0'));  // 64 KiB on the wire
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    v1::AttendResponse response;
    EXPECT_EQ(stub->Attend(&context, bomb, &response).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  ExpectServesOthers(daemon);
}

TEST(ConnectionLimitsTest, MetadataHasALargestSize) {
  Daemon daemon;
  client::ClientOptions options;
  options.name = std::string(100'000, 'a');
  options.retry.max_attempts = 1;
  EXPECT_THAT(Client::Create(daemon.tcp_address(), options)->GetLoad(), StatusIs(absl::StatusCode::kResourceExhausted));
  ExpectServesOthers(daemon);
}

// ---- Time -------------------------------------------------------------------------------------------------------------------

TEST(ConnectionLimitsTest, WhoFloodsItWithPingsIsHungUpOn) {
  Daemon daemon;
  RawHttp2 peer(daemon.tcp_address());
  peer.SayHello();
  for (int i = 0; i < 10 && peer.Send(Frame(kPingFrame, 0, 0, "12345678")); ++i) continue;
  EXPECT_TRUE(peer.AwaitClose(kLongest));
  EXPECT_TRUE(absl::StrContains(peer.received(), "too_many_pings")) << "its reason, in GOAWAY";
  ExpectServesOthers(daemon);
}

TEST(ConnectionLimitsTest, WhoDoesNotBeginIsHungUpOn) {
  Daemon daemon({"--peer_timeout=1s"});
  RawHttp2 silent(daemon.tcp_address());
  RawHttp2 stops(daemon.tcp_address());
  stops.Send("PRI * HTTP/2.0\r\n");
  EXPECT_TRUE(silent.AwaitClose(kLongest));
  EXPECT_TRUE(stops.AwaitClose(kLongest));
  ExpectServesOthers(daemon);
}

TEST(ConnectionLimitsTest, AnOldConnectionEndsWithItsCalls) {
  Daemon daemon({"--max_connection_age=1s"});
  const Client client = ConnectFor(daemon.tcp_address(), kLongest);
  client::AttendStream stream = client.OpenAttendStream();
  v1::AttendResponse response;
  ASSERT_TRUE(stream.Write(SmallRequest()) && stream.Read(&response));
  EXPECT_FALSE(stream.Read(&response));  // waits for no request: it would for ever
  EXPECT_THAT(stream.Finish().code(), AnyOf(Eq(absl::StatusCode::kUnavailable), Eq(absl::StatusCode::kCancelled)));
  EXPECT_THAT(client.Attend(SmallRequest()), IsOk()) << "on a new one";
}

using ConnectionAgeTest = TlsFixture;

TEST_F(ConnectionAgeTest, AnOldConnectionMeetsTheNewCertificates) {
  Daemon daemon(FlagsForKnownClients({"--max_connection_age=1s"}));
  const Client alice = ConnectAs(daemon.tcp_address(), "alice");
  ASSERT_THAT(alice.GetLoad(), IsOk());
  // Alice's authority is one no more.
  const support::CertificateAuthority next(folder_, "next");
  std::filesystem::rename(next.certificate(), authority_->certificate());
  const absl::Time end = absl::Now() + kLongest;
  while (alice.GetLoad().ok() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(50));
  EXPECT_THAT(alice.GetLoad(), StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace ridgeline::integration
