#include "client/cpp/async_attend_stream.h"

#include <memory>
#include <optional>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/tensor_io.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/wire_error.h"

namespace ridgeline::client {
namespace {

using support::StatusIs;
using ::testing::ElementsAre;

v1::AttendRequest RequestWithSeed(std::uint64_t seed) {
  v1::AttendRequest request;
  *request.mutable_query() = RandomTensor(v1::DATA_TYPE_FLOAT32, {1, 1, 1, 8}, seed);
  return request;
}

// Answers with the query.
grpc::Status Echo(const grpc::ServerContext&, const v1::AttendRequest& request, v1::AttendResponse* response) {
  *response->mutable_output() = request.query();
  return grpc::Status::OK;
}

Client Connect(const std::string& address) { return *Client::Create(address); }

// Keeps what happened.
class Recorder : public AttendStreamEvents {
 public:
  void OnAnswer(const v1::AttendResponse& response) override { seeds_.push_back(response.output().random().seed()); }
  void OnEnd(const absl::Status& status) override {
    status_ = status;
    ended_.Notify();
  }

  absl::Status WaitForEnd() {
    ended_.WaitForNotification();
    return status_;
  }
  const std::vector<std::uint64_t>& seeds() const { return seeds_; }  // after the end

 private:
  std::vector<std::uint64_t> seeds_;
  absl::Status status_;
  absl::Notification ended_;
};

TEST(AsyncAttendStreamTest, AnswersComeInOrder) {
  FakeServer server;
  server.attend = Echo;
  const Client client = Connect(server.address());
  Recorder recorder;
  AsyncAttendStream stream = client.OpenAsyncAttendStream(recorder);
  constexpr std::uint64_t kNumRequests = 300;
  for (std::uint64_t i = 0; i < kNumRequests; ++i) stream.Send(EncodedRequest(RequestWithSeed(i)));
  stream.WritesDone();
  EXPECT_OK(recorder.WaitForEnd());
  ASSERT_EQ(recorder.seeds().size(), kNumRequests);
  for (std::uint64_t i = 0; i < kNumRequests; ++i) ASSERT_EQ(recorder.seeds()[i], i);
  stream.Send(EncodedRequest(RequestWithSeed(0)));  // to no effect
  stream.WritesDone();
  stream.Cancel();
}

TEST(AsyncAttendStreamTest, OneRequestIsSentManyTimesOnManyStreams) {
  FakeServer server;
  server.attend = Echo;
  const Client client = Connect(server.address());
  const EncodedRequest request(RequestWithSeed(7));
  std::vector<std::unique_ptr<Recorder>> recorders;
  std::vector<AsyncAttendStream> streams;
  for (int i = 0; i < 8; ++i) {
    streams.push_back(client.OpenAsyncAttendStream(*recorders.emplace_back(std::make_unique<Recorder>())));
  }
  for (int i = 0; i < 3; ++i) {
    for (AsyncAttendStream& stream : streams) stream.Send(request);
  }
  for (AsyncAttendStream& stream : streams) stream.WritesDone();
  for (const std::unique_ptr<Recorder>& recorder : recorders) {
    EXPECT_OK(recorder->WaitForEnd());
    EXPECT_THAT(recorder->seeds(), ElementsAre(7, 7, 7));
  }
}

// As a decode loop does: the next request leaves from the event of the last answer.
TEST(AsyncAttendStreamTest, EventsMaySendAndEnd) {
  class Loop : public Recorder {
   public:
    void OnAnswer(const v1::AttendResponse& response) override {
      Recorder::OnAnswer(response);
      const std::uint64_t next = response.output().random().seed() + 1;
      if (next == 50) return stream->WritesDone();
      stream->Send(EncodedRequest(RequestWithSeed(next)));
    }
    std::optional<AsyncAttendStream> stream;
  };
  FakeServer server;
  server.attend = Echo;
  Loop loop;
  loop.stream.emplace(Connect(server.address()).OpenAsyncAttendStream(loop));
  loop.stream->Send(EncodedRequest(RequestWithSeed(0)));
  EXPECT_OK(loop.WaitForEnd());
  EXPECT_EQ(loop.seeds().size(), 50);
}

TEST(AsyncAttendStreamTest, AFailureEndsTheStreamAfterTheAnswersBeforeIt) {
  FakeServer server;
  server.attend = [](const grpc::ServerContext& context, const v1::AttendRequest& request, v1::AttendResponse* response) {
    if (request.query().random().seed() < 2) return Echo(context, request, response);
    return grpc::Status(grpc::INVALID_ARGUMENT, "query is missing", WireDetails(InfoWithReason("INVALID_FIELD")));
  };
  Recorder recorder;
  AsyncAttendStream stream = Connect(server.address()).OpenAsyncAttendStream(recorder);
  for (std::uint64_t i = 0; i < 5; ++i) stream.Send(EncodedRequest(RequestWithSeed(i)));
  EXPECT_THAT(recorder.WaitForEnd(), StatusIs(absl::StatusCode::kInvalidArgument, "query is missing [INVALID_FIELD]"));
  EXPECT_THAT(recorder.seeds(), ElementsAre(0, 1));
}

TEST(AsyncAttendStreamTest, ItsEndCancelsIt) {
  FakeServer server;
  absl::Notification started;
  server.attend = [&](const grpc::ServerContext& context, const v1::AttendRequest&, v1::AttendResponse*) {
    started.Notify();
    while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    return grpc::Status::CANCELLED;
  };
  Recorder recorder;
  {
    AsyncAttendStream stream = Connect(server.address()).OpenAsyncAttendStream(recorder);
    stream.Send(EncodedRequest(RequestWithSeed(0)));
    started.WaitForNotification();
  }
  EXPECT_THAT(recorder.WaitForEnd(), StatusIs(absl::StatusCode::kCancelled));
}

TEST(AsyncAttendStreamTest, TheTimeoutIsForTheWholeStream) {
  FakeServer server;
  Recorder recorder;
  const AsyncAttendStream stream = Connect(server.address()).OpenAsyncAttendStream(recorder, absl::Milliseconds(50));
  EXPECT_THAT(recorder.WaitForEnd(), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(AsyncAttendStreamTest, AnAnswerThatIsNoneEndsTheStream) {
  class GarbageReactor : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    GarbageReactor() {
      const grpc::Slice slice("\xff\xff\xff");
      bytes_ = grpc::ByteBuffer(&slice, 1);
      StartWrite(&bytes_);
    }
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer bytes_;
  };
  class Service : public v1::AttentionService::WithRawCallbackMethod_AttendStream<v1::AttentionService::Service> {
    grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttendStream(grpc::CallbackServerContext*) override {
      return new GarbageReactor();
    }
  } service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  Recorder recorder;
  const AsyncAttendStream stream = Connect(absl::StrCat("127.0.0.1:", port)).OpenAsyncAttendStream(recorder);
  EXPECT_THAT(recorder.WaitForEnd(), StatusIs(absl::StatusCode::kInternal, "the server's answer is no AttendResponse"));
  EXPECT_THAT(recorder.seeds(), ElementsAre());
}

}  // namespace
}  // namespace ridgeline::client
