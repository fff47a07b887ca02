#include "server/api/fuse_converter.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "kernels/fused/op_info.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::api {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using kernels::fused::GeluForm;
using kernels::fused::Mode;
using kernels::fused::Op;
using kernels::fused::RopeLayout;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<engine::FuseRequest> Convert(const v1::FuseRequest& message) {
  auto bytes = std::make_shared<std::string>(message.SerializeAsString());
  const device::HostSlice slice{bytes->data(), static_cast<std::int64_t>(bytes->size())};
  return ParseFuseRequest({&slice, 1}, bytes);
}

const OneofDescriptor& Operations() { return *v1::FuseRequest::descriptor()->FindOneofByName("op"); }

TEST(ParseFuseRequestTest, NothingIsGivenByDefault) {
  ASSERT_OK_AND_ASSIGN(const engine::FuseRequest request, Convert({}));
  EXPECT_FALSE(request.op.has_value());
  EXPECT_FALSE(request.mode.has_value());
  EXPECT_FALSE(request.discard);
}

// The contract's operations are the kernels', under the same names, and each tensor field arrives.
TEST(ParseFuseRequestTest, EveryOperationAndItsTensorsArrive) {
  ASSERT_EQ(Operations().field_count(), kernels::fused::kNumOps);
  for (int i = 0; i < Operations().field_count(); ++i) {
    const FieldDescriptor* const op_field = Operations().field(i);
    SCOPED_TRACE(op_field->name());
    EXPECT_EQ(op_field->name(), kernels::fused::Name(static_cast<Op>(i)));
    v1::FuseRequest message;
    Message& op = *message.GetReflection()->MutableMessage(&message, op_field);
    std::uint64_t seed = 0;
    for (int f = 0; f < op.GetDescriptor()->field_count(); ++f) {
      const FieldDescriptor* const field = op.GetDescriptor()->field(f);
      if (field->message_type() != v1::Tensor::descriptor()) continue;
      static_cast<v1::Tensor*>(op.GetReflection()->MutableMessage(&op, field))->mutable_random()->set_seed(++seed);
    }
    ASSERT_OK_AND_ASSIGN(const engine::FuseRequest request, Convert(message));
    EXPECT_EQ(request.op, static_cast<Op>(i));
    std::uint64_t num_arrived = 0;
    for (const auto* tensor : {&request.input, &request.other, &request.weight, &request.bias, &request.positions,
                               &request.append.new_key, &request.append.new_value}) {
      num_arrived += tensor->has_value();
    }
    EXPECT_EQ(num_arrived, seed);
  }
}

TEST(ParseFuseRequestTest, InlineTensorsStayWhereTheyAre) {
  v1::FuseRequest message;
  message.mutable_swiglu()->mutable_gate()->set_inline_data("the gate's bytes");
  message.mutable_swiglu()->mutable_up()->set_inline_data("the others");
  auto bytes = std::make_shared<std::string>(message.SerializeAsString());
  const device::HostSlice slice{bytes->data(), static_cast<std::int64_t>(bytes->size())};
  ASSERT_OK_AND_ASSIGN(const engine::FuseRequest request, ParseFuseRequest({&slice, 1}, bytes));
  const auto& gate = std::get<engine::InlineData>(request.input->storage);
  ASSERT_EQ(gate.slices.size(), 1u);
  EXPECT_EQ(gate.slices[0].data, bytes->data() + bytes->find("the gate's bytes"));
  EXPECT_EQ(std::get<engine::InlineData>(request.other->storage).size_bytes, 10);
}

TEST(ParseFuseRequestTest, OptionsArrive) {
  v1::FuseRequest message;
  message.set_mode(v1::EXECUTION_MODE_UNFUSED);
  message.mutable_output()->set_discard(true);
  v1::LayerNormGeluDropout& dropout = *message.mutable_layer_norm_gelu_dropout();
  dropout.set_epsilon(0);
  dropout.set_form(v1::GELU_FORM_TANH);
  dropout.set_probability(0.25);
  dropout.set_seed(7);
  dropout.set_offset(8);
  dropout.set_return_mask(true);
  ASSERT_OK_AND_ASSIGN(const engine::FuseRequest request, Convert(message));
  EXPECT_EQ(request.mode, Mode::kUnfused);
  EXPECT_TRUE(request.discard);
  EXPECT_EQ(request.epsilon, 0);
  EXPECT_EQ(request.gelu_form, GeluForm::kTanh);
  EXPECT_EQ(request.dropout.probability, 0.25);
  EXPECT_EQ(request.dropout.seed, 7u);
  EXPECT_EQ(request.dropout.offset, 8u);
  EXPECT_TRUE(request.return_mask);

  v1::RopeAppend& append = *message.mutable_rope_append();
  append.add_sequences("a");
  append.add_lengths(4);
  append.set_layer(2);
  append.set_layout(v1::ROPE_LAYOUT_INTERLEAVED);
  append.set_rotary_dim(16);
  append.set_base(500000);
  ASSERT_OK_AND_ASSIGN(const engine::FuseRequest rope, Convert(message));
  EXPECT_FALSE(rope.epsilon.has_value());
  EXPECT_THAT(rope.append.sequences, ElementsAre("a"));
  EXPECT_THAT(rope.append.lengths, ElementsAre(4));
  EXPECT_EQ(rope.append.layer, 2);
  EXPECT_EQ(rope.rope_layout, RopeLayout::kInterleaved);
  EXPECT_EQ(rope.rotary_dim, 16);
  EXPECT_EQ(rope.base, 500000);
}

TEST(ParseFuseRequestTest, UnknownEnumeratorsNameTheirField) {
  const auto field_of = [](const std::function<void(v1::FuseRequest&)>& spoil) {
    v1::FuseRequest message;
    spoil(message);
    const absl::Status status = Convert(message).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("there are 1"));
    return base::ErrorField(status);
  };
  EXPECT_EQ(field_of([](auto& m) { m.set_mode(static_cast<v1::ExecutionMode>(3)); }), "mode");
  EXPECT_EQ(field_of([](auto& m) { m.mutable_gelu()->set_form(static_cast<v1::GeluForm>(9)); }), "gelu.form");
  EXPECT_EQ(field_of([](auto& m) { m.mutable_rope()->set_layout(static_cast<v1::RopeLayout>(-1)); }), "rope.layout");
  EXPECT_EQ(field_of([](auto& m) { m.mutable_softmax()->mutable_input()->set_data_type(static_cast<v1::DataType>(99)); }),
            "softmax.input.data_type");
}

TEST(ToMessageTest, DescriptionsNameFieldsOfTheContract) {
  for (const engine::FusedOpDescription& description : engine::FusedOps()) {
    const v1::FusedOp op = ToMessage(description);
    SCOPED_TRACE(op.name());
    const FieldDescriptor* const field = v1::FuseRequest::descriptor()->FindFieldByName(op.name());
    ASSERT_NE(field, nullptr);
    std::size_t num_described = 0;
    for (const v1::FusedOpTensor& input : op.inputs()) {
      num_described += field->message_type()->FindFieldByName(input.name()) != nullptr;
    }
    for (const v1::FusedOpOption& option : op.options()) {
      num_described += field->message_type()->FindFieldByName(option.name()) != nullptr;
    }
    // But for where an append goes: sequences, layer and lengths.
    EXPECT_EQ(num_described, field->message_type()->field_count() - (op.name() == "rope_append" ? 3 : 0));
    EXPECT_EQ(op.inputs_size() + op.options_size(), static_cast<int>(num_described));
    EXPECT_THAT(op.data_types(), ElementsAre(v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_FLOAT16, v1::DATA_TYPE_BFLOAT16));
    EXPECT_EQ(op.max_row_elements(), 262144);
  }
}

}  // namespace
}  // namespace ridgeline::api
