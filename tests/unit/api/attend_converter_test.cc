#include "server/api/attend_converter.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::api {
namespace {

using kernels::DataType;
using kernels::attention::Algorithm;
using support::StatusIs;

absl::StatusOr<engine::AttendRequest> Convert(const v1::AttendRequest& message) {
  auto bytes = std::make_shared<std::string>(message.SerializeAsString());
  const device::HostSlice slice{bytes->data(), static_cast<std::int64_t>(bytes->size())};
  return ParseAttendRequest({&slice, 1}, bytes);
}

TEST(ParseAttendRequestTest, NothingIsGivenByDefault) {
  ASSERT_OK_AND_ASSIGN(const engine::AttendRequest request, Convert({}));
  EXPECT_FALSE(request.query.has_value());
  EXPECT_FALSE(request.dense.has_value());
  EXPECT_FALSE(request.paged.has_value());
  EXPECT_FALSE(request.options.algorithm.has_value());
  EXPECT_FALSE(request.options.scale.has_value());
  EXPECT_FALSE(request.options.window_left.has_value());
  EXPECT_FALSE(request.options.window_right.has_value());
  EXPECT_FALSE(request.output.data_type.has_value());
}

TEST(ParseAttendRequestTest, PagedKeysAndValuesArrive) {
  v1::AttendRequest message;
  message.mutable_paged()->add_sequences("a");
  message.mutable_paged()->add_sequences("b");
  message.mutable_paged()->set_layer(3);
  message.mutable_paged()->mutable_new_key()->set_inline_data("keys");
  message.mutable_paged()->mutable_new_value()->mutable_random()->set_seed(5);
  ASSERT_OK_AND_ASSIGN(const engine::AttendRequest request, Convert(message));
  EXPECT_FALSE(request.dense.has_value());
  EXPECT_THAT(request.paged->sequences, ::testing::ElementsAre("a", "b"));
  EXPECT_EQ(request.paged->layer, 3);
  EXPECT_EQ(std::get<engine::InlineData>(request.paged->new_key->storage).size_bytes, 4);
  EXPECT_EQ(std::get<engine::RandomFill>(request.paged->new_value->storage).seed, 5u);
  message.mutable_paged()->mutable_new_key()->set_data_type(static_cast<v1::DataType>(99));
  EXPECT_EQ(base::ErrorField(Convert(message).status()), "paged.new_key.data_type");
}

TEST(ParseAttendRequestTest, ZeroIsGivenWhereItIsSet) {
  v1::AttendRequest message;
  message.mutable_options()->set_scale(0);
  message.mutable_options()->set_window_left(0);
  message.mutable_options()->set_window_right(0);
  message.mutable_query()->mutable_random()->set_standard_deviation(0);
  ASSERT_OK_AND_ASSIGN(const engine::AttendRequest request, Convert(message));
  EXPECT_EQ(request.options.scale, 0);
  EXPECT_EQ(request.options.window_left, 0);
  EXPECT_EQ(request.options.window_right, 0);
  EXPECT_EQ(std::get<engine::RandomFill>(request.query->storage).standard_deviation, 0);
}

TEST(ParseAttendRequestTest, EveryFieldArrives) {
  v1::AttendRequest message;
  message.mutable_query()->set_data_type(v1::DATA_TYPE_BFLOAT16);
  message.mutable_query()->add_shape(7);
  message.mutable_query()->set_inline_data("bytes");
  message.add_query_lengths(3);
  message.mutable_dense()->mutable_key()->mutable_random()->set_seed(11);
  message.mutable_dense()->mutable_key()->mutable_random()->set_mean(2);
  message.mutable_dense()->mutable_value()->mutable_shared_memory()->set_region("region");
  message.mutable_dense()->mutable_value()->mutable_shared_memory()->set_offset_bytes(64);
  message.mutable_dense()->add_lengths(5);
  message.mutable_options()->set_algorithm(v1::ALGORITHM_STANDARD);
  message.mutable_options()->set_causal(true);
  message.mutable_options()->set_logit_soft_cap(30);
  for (v1::Tensor* tensor : {message.mutable_options()->mutable_alibi_slopes(),
                             message.mutable_options()->mutable_sink_logits(), message.mutable_options()->mutable_bias()}) {
    tensor->set_data_type(v1::DATA_TYPE_FLOAT32);
  }
  message.mutable_output()->set_log_sum_exp(true);
  message.mutable_output()->set_discard(true);
  message.mutable_output()->set_data_type(v1::DATA_TYPE_FLOAT16);
  message.mutable_output()->mutable_shared_memory()->set_region("out");

  ASSERT_OK_AND_ASSIGN(const engine::AttendRequest request, Convert(message));
  EXPECT_EQ(request.query->data_type, DataType::kBFloat16);
  EXPECT_EQ(request.query->shape, std::vector<std::int64_t>{7});
  EXPECT_EQ(std::get<engine::InlineData>(request.query->storage).size_bytes, 5);
  EXPECT_EQ(request.query_lengths, std::vector<std::int64_t>{3});
  EXPECT_EQ(std::get<engine::RandomFill>(request.dense->key->storage).seed, 11u);
  EXPECT_EQ(std::get<engine::RandomFill>(request.dense->key->storage).mean, 2);
  EXPECT_EQ(std::get<engine::RandomFill>(request.dense->key->storage).standard_deviation, 1);
  EXPECT_EQ(std::get<engine::SharedMemorySlice>(request.dense->value->storage).offset_bytes, 64);
  EXPECT_EQ(request.dense->lengths, std::vector<std::int64_t>{5});
  EXPECT_EQ(request.options.algorithm, Algorithm::kStandard);
  EXPECT_TRUE(request.options.causal);
  EXPECT_EQ(request.options.logit_soft_cap, 30);
  EXPECT_TRUE(request.options.alibi_slopes.has_value());
  EXPECT_TRUE(request.options.sink_logits.has_value());
  EXPECT_TRUE(request.options.bias.has_value());
  EXPECT_TRUE(request.output.log_sum_exp);
  EXPECT_TRUE(request.output.discard);
  EXPECT_EQ(request.output.data_type, DataType::kFloat16);
  EXPECT_EQ(request.output.shared_memory->region, "out");
}

TEST(ParseAttendRequestTest, PagedIsNoticed) {
  v1::AttendRequest message;
  message.mutable_paged()->set_layer(1);
  ASSERT_OK_AND_ASSIGN(const engine::AttendRequest request, Convert(message));
  EXPECT_TRUE(request.paged.has_value());
}

TEST(ParseAttendRequestTest, UnknownEnumeratorsNameTheirField) {
  v1::AttendRequest types;
  types.mutable_dense()->mutable_key()->set_data_type(static_cast<v1::DataType>(99));
  EXPECT_EQ(base::ErrorField(Convert(types).status()), "dense.key.data_type");
  v1::AttendRequest algorithms;
  algorithms.mutable_options()->set_algorithm(static_cast<v1::Algorithm>(-1));
  EXPECT_EQ(base::ErrorField(Convert(algorithms).status()), "options.algorithm");
}

TEST(ParseAttendRequestTest, BytesThatDoNotParseAreMalformed) {
  // A known string field that is not UTF-8 passes the splitter and fails the parser.
  const std::string bytes("\x0a\x05\x22\x03\x0a\x01\xff", 7);
  const device::HostSlice slice{bytes.data(), static_cast<std::int64_t>(bytes.size())};
  const auto request = ParseAttendRequest({&slice, 1}, nullptr);
  EXPECT_THAT(request, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(base::ErrorReason(request.status()), base::kReasonMalformedMessage);
}

TEST(ToMessageTest, PhasesOfTheKernelArriveInOrder) {
  engine::AttendResult result;
  result.report.kernel_phases = {{"scores", absl::Milliseconds(3)}, {"softmax", absl::Seconds(2) + absl::Nanoseconds(7)}};
  const v1::ExecutionReport report = ToMessage(result).report();
  ASSERT_EQ(report.kernel_phases_size(), 2);
  EXPECT_EQ(report.kernel_phases(0).name(), "scores");
  EXPECT_EQ(report.kernel_phases(0).time().seconds(), 0);
  EXPECT_EQ(report.kernel_phases(0).time().nanos(), 3'000'000);
  EXPECT_EQ(report.kernel_phases(1).name(), "softmax");
  EXPECT_EQ(report.kernel_phases(1).time().seconds(), 2);
  EXPECT_EQ(report.kernel_phases(1).time().nanos(), 7);
}

TEST(ToMessageTest, AKernelWithoutPhasesReportsNone) { EXPECT_EQ(ToMessage({}).report().kernel_phases_size(), 0); }

}  // namespace
}  // namespace ridgeline::api
