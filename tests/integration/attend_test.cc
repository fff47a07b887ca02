// Attend over TCP and unix sockets: right answers, errors that say what is wrong, cancellation, overload.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "ridgeline/v1/attention.grpc.pb.h"
#include "ridgeline/v1/device.grpc.pb.h"
#include "tests/integration/raw_call.h"
#include "tests/support/attention_case.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline {
namespace {

using client::Client;
using support::AttentionCase;
using support::Daemon;
using support::IsOk;
using support::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

v1::DataType TypeOf(kernels::DataType type) {
  switch (type) {
    case kernels::DataType::kFloat16:
      return v1::DATA_TYPE_FLOAT16;
    case kernels::DataType::kBFloat16:
      return v1::DATA_TYPE_BFLOAT16;
    default:
      return v1::DATA_TYPE_FLOAT32;
  }
}

void SetTensor(support::TestTensor& tensor, const std::vector<std::int64_t>& shape, v1::Tensor& message) {
  message.set_data_type(TypeOf(tensor.type()));
  for (const std::int64_t extent : shape) message.add_shape(extent);
  message.set_inline_data(tensor.bytes().data(), tensor.bytes().size());
}

// The case as a message.
v1::AttendRequest RequestOf(AttentionCase& attention_case) {
  const support::AttentionProblem& problem = attention_case.problem();
  const support::AttentionOptions& options = attention_case.options();
  const bool ragged = problem.ragged();
  const auto shape_of = [&](support::TestTensor& tensor, std::int64_t tokens, std::int64_t heads, std::int64_t head_dim) {
    if (ragged) return std::vector<std::int64_t>{tensor.elements() / (heads * head_dim), heads, head_dim};
    return std::vector<std::int64_t>{static_cast<std::int64_t>(problem.query_tokens.size()), tokens, heads, head_dim};
  };
  const std::int64_t query_tokens = problem.query_tokens.empty() ? 0 : problem.query_tokens[0];
  const std::int64_t key_tokens = problem.dense_key_tokens.value_or(0);
  v1::AttendRequest request;
  SetTensor(attention_case.query(), shape_of(attention_case.query(), query_tokens, problem.query_heads, problem.head_dim),
            *request.mutable_query());
  v1::DenseKeyValue& dense = *request.mutable_dense();
  SetTensor(attention_case.key(), shape_of(attention_case.key(), key_tokens, problem.kv_heads, problem.head_dim),
            *dense.mutable_key());
  SetTensor(attention_case.value(), shape_of(attention_case.value(), key_tokens, problem.kv_heads, problem.value_head_dim),
            *dense.mutable_value());
  for (const std::int64_t length : problem.key_tokens) dense.add_lengths(length);
  if (ragged) {
    for (const std::int64_t length : problem.query_tokens) request.add_query_lengths(length);
  }
  v1::AttentionOptions& wire = *request.mutable_options();
  if (options.scale.has_value()) wire.set_scale(*options.scale);
  wire.set_causal(options.causal);
  if (options.window_left.has_value()) wire.set_window_left(*options.window_left);
  if (options.window_right.has_value()) wire.set_window_right(*options.window_right);
  wire.set_logit_soft_cap(options.logit_soft_cap);
  if (options.alibi) SetTensor(attention_case.alibi_slopes(), {problem.query_heads}, *wire.mutable_alibi_slopes());
  if (options.sink != support::Sink::kNone)
    SetTensor(attention_case.sink_logits(), {problem.query_heads}, *wire.mutable_sink_logits());
  if (options.bias != support::Bias::kNone) SetTensor(attention_case.bias(), attention_case.bias_shape(), *wire.mutable_bias());
  request.mutable_output()->set_log_sum_exp(options.log_sum_exp);
  if (options.output_data_type.has_value()) request.mutable_output()->set_data_type(TypeOf(*options.output_data_type));
  return request;
}

v1::Tensor Random(const std::vector<std::int64_t>& shape, std::uint64_t seed) {
  v1::Tensor tensor;
  tensor.set_data_type(v1::DATA_TYPE_FLOAT32);
  for (const std::int64_t extent : shape) tensor.add_shape(extent);
  tensor.mutable_random()->set_seed(seed);
  return tensor;
}

v1::AttendRequest RandomRequest(std::int64_t tokens, std::int64_t heads = 1, std::int64_t head_dim = 64) {
  v1::AttendRequest request;
  *request.mutable_query() = Random({1, tokens, heads, head_dim}, 1);
  *request.mutable_dense()->mutable_key() = Random({1, tokens, heads, head_dim}, 2);
  *request.mutable_dense()->mutable_value() = Random({1, tokens, heads, head_dim}, 3);
  return request;
}

// A second of work or more.
v1::AttendRequest LongRequest(v1::Algorithm algorithm) {
  v1::AttendRequest request = RandomRequest(algorithm == v1::ALGORITHM_STANDARD ? 8'000 : support::LongTokens());
  request.mutable_options()->set_algorithm(algorithm);
  request.mutable_output()->set_discard(true);
  return request;
}

Client Connect(const std::string& address, int max_attempts = 1) {
  client::ClientOptions options;
  options.timeout = absl::Minutes(1);
  options.retry.max_attempts = max_attempts;
  return *Client::Create(address, options);
}

std::unique_ptr<v1::AttentionService::Stub> Stub(const std::string& address) {
  return v1::AttentionService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
}

template <typename Detail>
std::optional<Detail> FindDetail(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const google::protobuf::Any& any : details.details()) {
    Detail detail;
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

std::string ReasonOf(const grpc::Status& status) {
  const auto info = FindDetail<google::rpc::ErrorInfo>(status);
  return info.has_value() && info->domain() == "ridgeline.v1" ? info->reason() : "";
}

bool MemoryReturns(const Client& client) {
  for (int i = 0; i < 2000; ++i) {
    const auto stats = client.GetMemoryStats();
    if (stats.ok() && stats->allocation_count() == 0) return true;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return false;
}

// One daemon serves all tests of this file.
class AttendTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { daemon_ = new Daemon; }
  static void TearDownTestSuite() {
    daemon_->process().Signal(SIGTERM);
    EXPECT_EQ(daemon_->process().Wait(absl::Seconds(40)), 0);
    delete daemon_;
  }
  static Daemon* daemon_;
};

Daemon* AttendTest::daemon_ = nullptr;

TEST_F(AttendTest, AnswersAreRightOverEverySocketTypeAlgorithmAndOption) {
  const Client clients[] = {Connect(daemon_->unix_address()), Connect(daemon_->tcp_address())};
  std::uint64_t index = 0;
  for (const support::AttentionProblem& problem : support::SmallAttentionProblems()) {
    for (const support::OptionVariant& variant : support::OptionVariants()) {
      const support::AttentionOptions options = With(variant);
      if (!Allowed(problem, options)) continue;
      AttentionCase attention_case(problem, options, support::kAttentionTypes[index % 3],
                                   support::DeriveSeed("AnswersAreRight", index));
      attention_case.params();
      v1::AttendRequest request = RequestOf(attention_case);
      request.mutable_options()->set_algorithm(index % 4 < 2 ? v1::ALGORITHM_FLASH : v1::ALGORITHM_STANDARD);
      const auto response = clients[index++ % 2].Attend(request);
      ASSERT_THAT(response, IsOk()) << attention_case.name();
      const std::string& output = response->output().inline_data();
      const std::string& lse = response->log_sum_exp().inline_data();
      EXPECT_TRUE(attention_case.AnswerIsRight(std::as_bytes(std::span(output)),
                                               {reinterpret_cast<const float*>(lse.data()), lse.size() / sizeof(float)}));
    }
  }
  EXPECT_GT(index, 50u);
}

TEST_F(AttendTest, ReportsWhatItDid) {
  const auto response = Connect(daemon_->unix_address()).Attend(RandomRequest(128, 2));
  ASSERT_THAT(response, IsOk());
  const v1::ExecutionReport& report = response->report();
  EXPECT_EQ(report.flops(), 4 * 128 * 128 * 2 * 64);
  EXPECT_EQ(report.bytes(), 4 * 4 * 128 * 2 * 64);
  EXPECT_EQ(report.algorithm(), v1::ALGORITHM_FLASH);
  EXPECT_EQ(report.batch_requests(), 1);
  EXPECT_GT(report.kernel_time().nanos(), 0);
  EXPECT_GT(report.roof_fraction(), 0);
  EXPECT_THAT(report.kernel(), HasSubstr(support::TestDevice() == "cpu" ? "flash_cpu" : "flash_float32"));
}

TEST_F(AttendTest, AStreamAnswersInOrder) {
  const Client client = Connect(daemon_->unix_address());
  client::AttendStream stream = client.OpenAttendStream();
  constexpr int kRequests = 50;
  std::thread writer([&] {
    for (int i = 0; i < kRequests; ++i) EXPECT_TRUE(stream.Write(RandomRequest(i % 7 == 0 ? 600 : i + 1)));
    stream.WritesDone();
  });
  for (int i = 0; i < kRequests; ++i) {
    v1::AttendResponse response;
    ASSERT_TRUE(stream.Read(&response)) << i;
    EXPECT_EQ(response.output().shape(1), i % 7 == 0 ? 600 : i + 1);
  }
  writer.join();
  EXPECT_THAT(stream.Finish(), IsOk());
}

TEST_F(AttendTest, AStreamEndsWithItsFirstErrorAfterTheAnswersBefore) {
  const Client client = Connect(daemon_->unix_address());
  client::AttendStream stream = client.OpenAttendStream();
  ASSERT_TRUE(stream.Write(RandomRequest(500)));
  ASSERT_TRUE(stream.Write(RandomRequest(2)));
  v1::AttendRequest bad = RandomRequest(3);
  bad.mutable_options()->set_window_left(-1);
  ASSERT_TRUE(stream.Write(bad));
  v1::AttendResponse response;
  ASSERT_TRUE(stream.Read(&response));
  EXPECT_EQ(response.output().shape(1), 500);
  ASSERT_TRUE(stream.Read(&response));
  EXPECT_FALSE(stream.Read(&response));
  EXPECT_THAT(stream.Finish(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("options.window_left")));
}

TEST_F(AttendTest, AReaderThatDoesNotReadHoldsTheStreamNotTheMemory) {
  const Client client = Connect(daemon_->unix_address());
  {
    ASSERT_THAT(client.ResetPeakMemoryStats(), IsOk());
    client::AttendStream stream = client.OpenAttendStream();
    // 400 answers of 1 MiB each, which nobody reads.
    for (int i = 0; i < 400 && stream.Write(RandomRequest(1'024, 4)); ++i) continue;
    absl::SleepFor(absl::Seconds(1));
    const auto stats = client.GetMemoryStats();
    ASSERT_THAT(stats, IsOk());
    EXPECT_LT(stats->peak_allocated_bytes(), std::int64_t{100} << 20);
  }
  EXPECT_TRUE(MemoryReturns(client));
}

TEST_F(AttendTest, ErrorsSayWhichFieldAndCarryTheInstance) {
  v1::AttendRequest request = RandomRequest(4);
  request.mutable_query()->clear_random();
  request.mutable_query()->set_inline_data("short");
  grpc::ClientContext context;
  v1::AttendResponse response;
  const grpc::Status status = Stub(daemon_->tcp_address())->Attend(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "INVALID_FIELD");
  const auto bad_request = FindDetail<google::rpc::BadRequest>(status);
  ASSERT_TRUE(bad_request.has_value());
  EXPECT_EQ(bad_request->field_violations(0).field(), "query.inline_data");
  EXPECT_EQ(context.GetServerInitialMetadata().count("x-ridgeline-instance"), 1u);
  EXPECT_EQ(context.GetServerTrailingMetadata().count("x-ridgeline-instance"), 1u);
  EXPECT_EQ(context.GetServerTrailingMetadata().count("x-ridgeline-request"), 1u);
}

TEST_F(AttendTest, WhatThisServerLacksIsUnimplemented) {
  const Client client = Connect(daemon_->unix_address());
  v1::AttendRequest shared = RandomRequest(4);
  shared.mutable_output()->mutable_shared_memory()->set_region("region");
  EXPECT_THAT(client.Attend(shared), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("output.shared_memory")));
}

TEST_F(AttendTest, BytesThatAreNoMessageAreAnInvalidArgument) {
  for (const std::string& bytes : {std::string("\xff\xff\xff"), std::string("\x0a\x7f"), std::string(1000, '\x01')}) {
    const grpc::Status status = CallRaw(daemon_->unix_address(), "/ridgeline.v1.AttentionService/Attend", bytes).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(ReasonOf(status), "MALFORMED_MESSAGE");
  }
}

TEST_F(AttendTest, UnknownMethodsAreUnimplementedWithDetails) {
  const RawAnswer answer = CallRaw(daemon_->unix_address(), "/ridgeline.v1.AttentionService/Guess", "");
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(ReasonOf(answer.status), "UNSUPPORTED");
  EXPECT_EQ(answer.trailers.count("x-ridgeline-instance"), 1u);
}

TEST_F(AttendTest, WhatMemoryCannotHoldIsRefusedAtOnce) {
  v1::AttendRequest request = RandomRequest(2'000'000, 1, 8);
  request.mutable_options()->set_algorithm(v1::ALGORITHM_STANDARD);
  const absl::Time start = absl::Now();
  const auto response = Connect(daemon_->unix_address()).Attend(request);
  EXPECT_THAT(response, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("flash attention takes")));
  EXPECT_EQ(client::ErrorReason(response.status()), "OUT_OF_MEMORY");
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST_F(AttendTest, AnAnswerLargerThanAMessageIsRefusedBeforeItIsComputed) {
  const Client client = Connect(daemon_->unix_address());
  ASSERT_THAT(client.ResetPeakMemoryStats(), IsOk());
  const auto before = client.GetMemoryStats();
  ASSERT_THAT(before, IsOk());
  v1::AttendRequest request;
  *request.mutable_query() = Random({1, 1 << 20, 8, 64}, 1);  // 2 GiB
  *request.mutable_dense()->mutable_key() = Random({1, 1, 8, 64}, 2);
  *request.mutable_dense()->mutable_value() = Random({1, 1, 8, 64}, 3);
  const auto response = client.Attend(request);
  EXPECT_THAT(response,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("2.0 GiB (2147483648 bytes)"), HasSubstr("one message holds"), HasSubstr("discard"))));
  EXPECT_EQ(client::ErrorReason(response.status()), "MESSAGE_TOO_LARGE");
  const auto after = client.GetMemoryStats();
  ASSERT_THAT(after, IsOk());
  EXPECT_EQ(after->total_allocation_count(), before->total_allocation_count());
}

TEST_F(AttendTest, CancelledCallsGiveEverythingBack) {
  const auto stub = Stub(daemon_->unix_address());
  for (int i = 0; i < 40; ++i) {
    grpc::ClientContext context;
    v1::AttendResponse response;
    std::thread cancel([&] {
      absl::SleepFor(absl::Microseconds(250 * i));
      context.TryCancel();
    });
    const v1::AttendRequest request = LongRequest(i % 2 == 0 ? v1::ALGORITHM_STANDARD : v1::ALGORITHM_FLASH);
    EXPECT_EQ(stub->Attend(&context, request, &response).error_code(), grpc::StatusCode::CANCELLED);
    cancel.join();
  }
  const Client client = Connect(daemon_->unix_address());
  EXPECT_TRUE(MemoryReturns(client));
  EXPECT_THAT(client.Attend(RandomRequest(64)), IsOk());
}

TEST_F(AttendTest, ADeadlineEndsTheWork) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  v1::AttendResponse response;
  EXPECT_EQ(Stub(daemon_->unix_address())->Attend(&context, LongRequest(v1::ALGORITHM_FLASH), &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(MemoryReturns(Connect(daemon_->unix_address())));
}

TEST(OverloadTest, TheQueueIsBoundedAndSaysWhenToComeBack) {
  Daemon daemon({"--lanes=1", "--max_queued_requests=2"});
  std::atomic<int> answered = 0, refused = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back([&] {
      grpc::ClientContext context;
      v1::AttendResponse response;
      const grpc::Status status = Stub(daemon.unix_address())->Attend(&context, RandomRequest(6'000), &response);
      if (status.ok()) {
        ++answered;
        return;
      }
      ++refused;
      EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      EXPECT_EQ(ReasonOf(status), "QUEUE_FULL");
      EXPECT_TRUE(FindDetail<google::rpc::RetryInfo>(status).has_value());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(answered, 3);
  EXPECT_GE(refused, 1);
}

TEST(MessageSizeTest, ALargerMessageIsRefused) {
  Daemon daemon({"--max_message_bytes=10000"});
  v1::AttendRequest request = RandomRequest(1);
  request.mutable_query()->set_inline_data(std::string(20'000, 'x'));
  EXPECT_THAT(Connect(daemon.unix_address()).Attend(request), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Connect(daemon.unix_address()).Attend(RandomRequest(4)), IsOk());
}

}  // namespace
}  // namespace ridgeline
