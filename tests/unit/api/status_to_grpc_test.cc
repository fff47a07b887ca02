#include "server/api/status_to_grpc.h"

#include <optional>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "server/base/error.h"

namespace ridgeline::api {
namespace {

template <typename Detail>
std::optional<Detail> Find(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), status.error_code());
  for (const google::protobuf::Any& any : details.details()) {
    Detail detail;
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

TEST(ToGrpcTest, OkIsOk) { EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok()); }

TEST(ToGrpcTest, EveryErrorHasAReasonInOurDomain) {
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status status = ToGrpc(absl::Status(static_cast<absl::StatusCode>(code), "what happened"));
    EXPECT_EQ(status.error_code(), code);
    EXPECT_EQ(status.error_message(), "what happened");
    const auto info = Find<google::rpc::ErrorInfo>(status);
    ASSERT_TRUE(info.has_value());
    EXPECT_EQ(info->domain(), "ridgeline.v1");
    EXPECT_FALSE(info->reason().empty());
  }
}

TEST(ToGrpcTest, ARequestIsNamedToo) {
  const auto request = Find<google::rpc::RequestInfo>(ToGrpc(absl::InternalError("no"), "abc-7"));
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->request_id(), "abc-7");
  EXPECT_FALSE(Find<google::rpc::RequestInfo>(ToGrpc(absl::InternalError("no"))).has_value());
}

TEST(ToGrpcTest, AFieldIsNamed) {
  const grpc::Status status = ToGrpc(base::InvalidField("dense.key.shape", "has rank 2"));
  EXPECT_EQ(status.error_message(), "dense.key.shape: has rank 2");
  const auto bad_request = Find<google::rpc::BadRequest>(status);
  ASSERT_TRUE(bad_request.has_value());
  ASSERT_EQ(bad_request->field_violations_size(), 1);
  EXPECT_EQ(bad_request->field_violations(0).field(), "dense.key.shape");
  EXPECT_EQ(bad_request->field_violations(0).description(), "has rank 2");
}

TEST(ToGrpcTest, ARetryDelayIsTold) {
  const auto retry = Find<google::rpc::RetryInfo>(
      ToGrpc(base::WithRetryDelay(absl::ResourceExhaustedError("full"), absl::Milliseconds(1250))));
  ASSERT_TRUE(retry.has_value());
  EXPECT_EQ(retry->retry_delay().seconds(), 1);
  EXPECT_EQ(retry->retry_delay().nanos(), 250'000'000);
  EXPECT_FALSE(Find<google::rpc::RetryInfo>(ToGrpc(absl::InternalError("no"))).has_value());
}

TEST(ToGrpcTest, LongMessagesAreCutBetweenCharacters) {
  std::string text;
  while (text.size() < 5000) text += "\xc3\xa4";  // "ä"
  for (const char* prefix : {"", "x"}) {
    const std::string message = ToGrpc(absl::InternalError(prefix + text)).error_message();
    EXPECT_LE(message.size(), 1100u);
    google::rpc::Status utf8;
    utf8.set_message(message);
    EXPECT_TRUE(google::rpc::Status().ParseFromString(utf8.SerializeAsString()));  // proto3 strings must be UTF-8
  }
}

}  // namespace
}  // namespace ridgeline::api
