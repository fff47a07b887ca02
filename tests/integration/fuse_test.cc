// Fused operations over TCP and unix sockets: right answers in both modes, errors that name the field, cancellation, what a
// person is told.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "client/cpp/tensor_io.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "kernels/fused/op_info.h"
#include "ridgeline/v1/fused.grpc.pb.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/integration/raw_call.h"
#include "tests/support/attention_case.h"
#include "tests/support/daemon.h"
#include "tests/support/fused_case.h"
#include "tests/support/fused_shapes.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::integration {
namespace {

using client::Client;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using kernels::DataType;
using kernels::fused::FusedShape;
using kernels::fused::GeluForm;
using kernels::fused::Mode;
using kernels::fused::Op;
using kernels::fused::RopeLayout;
using support::Daemon;
using support::FusedCase;
using support::IsOk;
using support::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

v1::DataType TypeOf(DataType type) {
  if (type == DataType::kFloat16) return v1::DATA_TYPE_FLOAT16;
  return type == DataType::kBFloat16 ? v1::DATA_TYPE_BFLOAT16 : v1::DATA_TYPE_FLOAT32;
}

v1::ExecutionMode ModeOf(Mode mode) { return mode == Mode::kFused ? v1::EXECUTION_MODE_FUSED : v1::EXECUTION_MODE_UNFUSED; }

std::vector<std::int64_t> RowsShape(const FusedShape& shape) {
  if (!kernels::fused::InfoOf(shape.op).has_rope) return {shape.num_rows, shape.row_elems};
  return {shape.num_rows, shape.row_elems / shape.rope.head_dim, shape.rope.head_dim};
}

v1::Tensor TensorOf(v1::DataType type, const std::vector<std::int64_t>& shape, const void* data, std::size_t size_bytes) {
  v1::Tensor tensor;
  tensor.set_data_type(type);
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  tensor.set_inline_data(data, size_bytes);
  return tensor;
}

// The operation's message, by the names that the kernels have for it.
Message& MutableOp(v1::FuseRequest& request, Op op) {
  const FieldDescriptor* const field = v1::FuseRequest::descriptor()->FindFieldByName(kernels::fused::Name(op));
  return *request.GetReflection()->MutableMessage(&request, field);
}

// Fields that the operation lacks stay away.
class FieldSetter {
 public:
  explicit FieldSetter(Message& op) : op_(op) {}

  void Set(const char* name, v1::Tensor tensor) const {
    if (const FieldDescriptor* field = Find(name)) {
      static_cast<v1::Tensor&>(*op_.GetReflection()->MutableMessage(&op_, field)) = std::move(tensor);
    }
  }
  void Set(const char* name, double value) const {
    if (const FieldDescriptor* field = Find(name)) op_.GetReflection()->SetDouble(&op_, field, value);
  }
  void Set(const char* name, std::uint64_t value) const {
    if (const FieldDescriptor* field = Find(name)) op_.GetReflection()->SetUInt64(&op_, field, value);
  }
  void Set(const char* name, std::int64_t value) const {
    if (const FieldDescriptor* field = Find(name)) op_.GetReflection()->SetInt64(&op_, field, value);
  }
  void Set(const char* name, bool value) const {
    if (const FieldDescriptor* field = Find(name)) op_.GetReflection()->SetBool(&op_, field, value);
  }
  void SetEnum(const char* name, int value) const {
    if (const FieldDescriptor* field = Find(name)) op_.GetReflection()->SetEnumValue(&op_, field, value);
  }

 private:
  const FieldDescriptor* Find(const char* name) const { return op_.GetDescriptor()->FindFieldByName(name); }

  Message& op_;
};

v1::FuseRequest RequestOf(FusedCase& fused_case, Mode mode) {
  const FusedShape& shape = fused_case.shape();
  const auto tensor = [&](support::TestTensor& from, const std::vector<std::int64_t>& extents) {
    return TensorOf(TypeOf(shape.data_type), extents, from.bytes().data(), from.bytes().size());
  };
  v1::FuseRequest request;
  request.set_mode(ModeOf(mode));
  const FieldSetter op(MutableOp(request, shape.op));
  for (const char* name : {"input", "gate"}) op.Set(name, tensor(fused_case.input(), RowsShape(shape)));
  for (const char* name : {"residual", "up"}) op.Set(name, tensor(fused_case.other(), RowsShape(shape)));
  if (shape.has_weight) op.Set("weight", tensor(fused_case.weight(), {shape.row_elems}));
  if (shape.has_bias) op.Set("bias", tensor(fused_case.bias(), {shape.row_elems}));
  if (shape.has_positions) {
    op.Set("positions", TensorOf(v1::DATA_TYPE_INT64, {shape.num_rows}, fused_case.positions().data(), shape.num_rows * 8));
  }
  op.Set("epsilon", shape.epsilon);
  op.SetEnum("form", shape.gelu_form == GeluForm::kErf ? v1::GELU_FORM_ERF : v1::GELU_FORM_TANH);
  op.Set("probability", shape.dropout.probability);
  op.Set("seed", shape.dropout.seed);
  op.Set("offset", shape.dropout.offset);
  op.Set("return_mask", shape.has_mask);
  op.SetEnum("layout", shape.rope.layout == RopeLayout::kHalfSplit ? v1::ROPE_LAYOUT_HALF_SPLIT : v1::ROPE_LAYOUT_INTERLEAVED);
  op.Set("rotary_dim", shape.rope.rotary_dim);
  op.Set("base", shape.rope.base);
  return request;
}

::testing::AssertionResult IsRight(FusedCase& fused_case, Mode mode, const v1::FuseResponse& response) {
  const kernels::fused::FusedParams& params = fused_case.params();
  fused_case.Poison();
  std::vector<void*> places = {params.output};
  const kernels::fused::OpInfo& info = kernels::fused::InfoOf(params.shape.op);
  if (info.residual_output != kernels::fused::Use::kNone) places.push_back(params.residual_output);
  if (params.shape.has_mask) places.push_back(params.mask_output);
  if (response.outputs_size() != static_cast<int>(places.size())) {
    return ::testing::AssertionFailure() << "there are " << response.outputs_size() << " outputs";
  }
  const std::vector<std::int64_t> shape = RowsShape(params.shape);
  for (int i = 0; i < response.outputs_size(); ++i) {
    const v1::Tensor& output = response.outputs(i);
    const bool is_mask = params.shape.has_mask && i == 1;
    if (output.data_type() != (is_mask ? v1::DATA_TYPE_UINT8 : TypeOf(params.shape.data_type)) ||
        !std::equal(shape.begin(), shape.end(), output.shape().begin(), output.shape().end())) {
      return ::testing::AssertionFailure() << "output " << i << " has another type or shape";
    }
    const std::int64_t element_bytes = is_mask ? 1 : kernels::ElementBytes(params.shape.data_type);
    const auto size_bytes = static_cast<std::size_t>(params.shape.num_rows * params.shape.row_elems * element_bytes);
    if (output.inline_data().size() != size_bytes) return ::testing::AssertionFailure() << "output " << i << " isn't whole";
    if (size_bytes > 0) std::memcpy(places[i], output.inline_data().data(), size_bytes);
  }
  return fused_case.IsRight(mode);
}

v1::FuseRequest RandomLayerNorm(const std::vector<std::int64_t>& shape) {
  v1::FuseRequest request;
  *request.mutable_layer_norm()->mutable_input() = client::RandomTensor(v1::DATA_TYPE_FLOAT32, shape, 1);
  return request;
}

// One daemon serves all tests of this file.
class FuseTest : public ::testing::Test {
 protected:
  // Cancelled work may still hold what it was admitted with when the next call comes: there is room for all.
  static void SetUpTestSuite() { daemon_ = new Daemon({"--max_queued_bytes=1099511627776"}); }
  static void TearDownTestSuite() {
    daemon_->process().Signal(SIGTERM);
    EXPECT_EQ(daemon_->process().Wait(absl::Seconds(40)), 0);
    delete daemon_;
  }
  static Client Connect() { return integration::Connect(daemon_->unix_address()); }

  static Daemon* daemon_;
};

Daemon* FuseTest::daemon_ = nullptr;

TEST_F(FuseTest, AnswersAreRightOverEverySocketOperationTypeAndMode) {
  const Client clients[] = {Connect(), integration::Connect(daemon_->tcp_address())};
  std::vector<FusedShape> shapes;
  for (const Op op : support::RowOps()) {
    for (const support::RowsByColumns& size : {support::RowsByColumns{0, 8}, {9, 1}, {4, 129}, {2, 4097}}) {
      for (const DataType type : support::kFusedTypes) {
        for (const FusedShape& shape : support::VariantsOf(support::ShapeOf(op, type, size))) shapes.push_back(shape);
      }
    }
  }
  for (const DataType type : support::kFusedTypes) {
    for (FusedShape shape : support::RopeShapes(type)) {
      shapes.push_back(shape);
      shape.has_positions = true;
      shapes.push_back(shape);
    }
  }
  std::uint64_t index = 0;
  for (const FusedShape& shape : shapes) {
    FusedCase fused_case(shape, support::DeriveSeed("fuse over sockets", index));
    const Mode mode = support::kFusedModes[index % 2];
    const auto response = clients[index++ / 2 % 2].Fuse(RequestOf(fused_case, mode));
    ASSERT_THAT(response, IsOk()) << support::Describe(shape);
    EXPECT_TRUE(IsRight(fused_case, mode, *response)) << support::Describe(shape);
  }
}

TEST_F(FuseTest, BothModesOfOneRequestAgreeAndReportWhatTheyMoved) {
  v1::FuseRequest request = RandomLayerNorm({64, 2, 1024});
  const Client client = Connect();
  const auto fused = client.Fuse(request);
  request.set_mode(v1::EXECUTION_MODE_UNFUSED);
  const auto unfused = client.Fuse(request);
  ASSERT_THAT(fused, IsOk());
  ASSERT_THAT(unfused, IsOk());
  EXPECT_EQ(fused->kernel_count(), 1);
  EXPECT_EQ(unfused->kernel_count(), 5);
  EXPECT_EQ(fused->report().bytes(), 2 * 64 * 2 * 1024 * 4);
  EXPECT_GT(unfused->report().bytes(), 3 * fused->report().bytes());
  EXPECT_EQ(fused->report().flops(), unfused->report().flops());
  EXPECT_EQ(fused->report().algorithm(), v1::ALGORITHM_UNSPECIFIED);
  EXPECT_EQ(fused->report().bound(), v1::BOUND_MEMORY);
  EXPECT_GT(fused->report().kernel_time().nanos(), 0);
  EXPECT_GT(fused->report().roof_fraction(), 0);
  const auto one = client::FromTensor(fused->outputs(0)), other = client::FromTensor(unfused->outputs(0));
  ASSERT_THAT(one, IsOk());
  ASSERT_THAT(other, IsOk());
  EXPECT_LT(client::LargestDifference(*one, *other)->max_abs, 1e-5);
}

TEST_F(FuseTest, WhatIsWrongIsNamedAtOnce) {
  const Client client = Connect();
  const auto field_of = [&](const v1::FuseRequest& request) {
    const absl::Status status = client.Fuse(request).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument));
    const std::vector<std::string> fields = client::ViolatedFields(status);
    return fields.empty() ? std::string() : fields[0];
  };
  EXPECT_EQ(field_of({}), "op");
  EXPECT_EQ(field_of(RandomLayerNorm({kHuge, kHuge, 8})), "layer_norm.input.shape");
  EXPECT_EQ(field_of(RandomLayerNorm({kHuge / 4, 4})), "layer_norm.input.shape");
  EXPECT_EQ(field_of(RandomLayerNorm({4, 0})), "layer_norm.input.shape");
  EXPECT_EQ(field_of(RandomLayerNorm({1, 262145})), "layer_norm.input.shape");
  EXPECT_EQ(field_of(RandomLayerNorm({})), "layer_norm.input.shape");
  v1::FuseRequest request = RandomLayerNorm({2, 4});
  *request.mutable_layer_norm()->mutable_weight() = TensorOf(v1::DATA_TYPE_FLOAT32, {4}, "short", 5);
  EXPECT_EQ(field_of(request), "layer_norm.weight.inline_data");
  request = RandomLayerNorm({2, 4});
  request.mutable_layer_norm()->set_epsilon(-1);
  EXPECT_EQ(field_of(request), "layer_norm.epsilon");
  request.set_mode(static_cast<v1::ExecutionMode>(7));
  EXPECT_EQ(field_of(request), "mode");
}

TEST_F(FuseTest, NoRowsAreLegal) {
  const auto response = Connect().Fuse(RandomLayerNorm({0, 1 << 20, 16}));
  ASSERT_THAT(response, IsOk());
  ASSERT_EQ(response->outputs_size(), 1);
  EXPECT_TRUE(response->outputs(0).has_inline_data());
  EXPECT_TRUE(response->outputs(0).inline_data().empty());
}

TEST_F(FuseTest, WhatIsTooLargeIsRefusedBeforeItIsComputed) {
  const Client client = Connect();
  const auto before = client.GetMemoryStats();
  ASSERT_THAT(before, IsOk());
  v1::FuseRequest request = RandomLayerNorm({1 << 20, 512});  // 2 GiB
  const absl::Status message = client.Fuse(request).status();
  EXPECT_THAT(message, StatusIs(absl::StatusCode::kResourceExhausted, AllOf(HasSubstr("2.0 GiB"), HasSubstr("discard"))));
  EXPECT_EQ(client::ErrorReason(message), "MESSAGE_TOO_LARGE");
  request = RandomLayerNorm({std::int64_t{1} << 40, 4096});
  request.mutable_output()->set_discard(true);
  const absl::Status memory = client.Fuse(request).status();
  EXPECT_THAT(memory, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(client::ErrorReason(memory), "OUT_OF_MEMORY");
  const auto after = client.GetMemoryStats();
  ASSERT_THAT(after, IsOk());
  EXPECT_EQ(after->total_allocation_count(), before->total_allocation_count());
}

TEST_F(FuseTest, BytesThatAreNoMessageAreAnInvalidArgument) {
  for (const char* method : {"/ridgeline.v1.FusedService/Fuse", "/ridgeline.v1.FusedService/ListFusedOps"}) {
    for (const std::string& bytes : {std::string("\xff\xff\xff"), std::string("\x12\x7f")}) {
      EXPECT_EQ(CallRaw(daemon_->unix_address(), method, bytes).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    }
  }
}

TEST_F(FuseTest, CancelledAndLateCallsGiveEverythingBack) {
  const auto stub = v1::FusedService::NewStub(grpc::CreateChannel(daemon_->unix_address(), grpc::InsecureChannelCredentials()));
  v1::FuseRequest request;
  // A tenth of a second on two cores; 7 ms on a GPU, of a tensor of 1 GiB, whose chain needs a few such at a time.
  const std::int64_t num_rows = support::TestDevice() == "cpu" ? 1 << 15 : 1 << 18;
  *request.mutable_layer_norm_gelu_dropout()->mutable_input() =
      client::RandomTensor(v1::DATA_TYPE_FLOAT32, {num_rows, 1024}, 1);
  request.set_mode(v1::EXECUTION_MODE_UNFUSED);
  request.mutable_output()->set_discard(true);
  for (int i = 0; i < 10; ++i) {
    grpc::ClientContext context;
    v1::FuseResponse response;
    std::thread cancel([&] {
      absl::SleepFor(absl::Microseconds(200 * i));
      context.TryCancel();
    });
    EXPECT_EQ(stub->Fuse(&context, request, &response).error_code(), grpc::StatusCode::CANCELLED);
    cancel.join();
  }
  grpc::ClientContext late;
  late.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(2));
  v1::FuseResponse response;
  EXPECT_EQ(stub->Fuse(&late, request, &response).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  const Client client = Connect();
  bool returned = false;
  for (int i = 0; i < 2000 && !returned; ++i) {
    const auto stats = client.GetMemoryStats();
    returned = stats.ok() && stats->allocation_count() == 0;
    if (!returned) absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_TRUE(returned);
  EXPECT_THAT(client.Fuse(RandomLayerNorm({4, 4})), IsOk());
}

// A decode step in two calls: what RopeAppend stores is what Attend sees, at the places of the sequence.
TEST_F(FuseTest, RopeAppendFillsACacheThatAttendReads) {
  const Client client = Connect();
  ASSERT_THAT(client.CreateKvCache(CacheRequest("fuse", 16)), IsOk());
  const auto sequence = client.CreateSequence("kvCaches/fuse", "a");
  ASSERT_THAT(sequence, IsOk());
  Tokens turned;
  for (const std::int64_t num_tokens : {6, 1}) {
    const Tokens tokens = RandomTokens(num_tokens, /*seed=*/turned.size() + 1);
    std::vector<std::int64_t> positions(num_tokens);
    for (std::int64_t t = 0; t < num_tokens; ++t) positions[t] = turned.size() + t;
    v1::FuseRequest rope;
    *rope.mutable_rope()->mutable_input() = InlineTensor({num_tokens, kKvHeads, kHeadDim}, tokens.key);
    *rope.mutable_rope()->mutable_positions() =
        TensorOf(v1::DATA_TYPE_INT64, {num_tokens}, positions.data(), positions.size() * 8);
    const auto keys = client.Fuse(rope);
    ASSERT_THAT(keys, IsOk());
    turned.Append({Elements(keys->outputs(0)), tokens.value});

    v1::FuseRequest request;
    v1::RopeAppend& append = *request.mutable_rope_append();
    append.add_sequences(sequence->name());
    *append.mutable_new_key() = InlineTensor({1, num_tokens, kKvHeads, kHeadDim}, tokens.key);
    *append.mutable_new_value() = InlineTensor({1, num_tokens, kKvHeads, kValueHeadDim}, tokens.value);
    *append.mutable_query() = InlineTensor({1, num_tokens, kKvHeads, kHeadDim}, tokens.key);
    const auto appended = client.Fuse(request);
    ASSERT_THAT(appended, IsOk());
    EXPECT_THAT(appended->lengths(), ::testing::ElementsAre(turned.size()));
    ASSERT_EQ(appended->outputs_size(), 1);
    EXPECT_EQ(Elements(appended->outputs(0)), Elements(keys->outputs(0))) << "queries turn as keys do";
  }
  ExpectHolds(client, sequence->name(), /*layer=*/0, turned);
  v1::FuseRequest lost;
  lost.mutable_rope_append()->add_sequences("kvCaches/none/sequences/a");
  *lost.mutable_rope_append()->mutable_new_key() = InlineTensor({1, 0, kKvHeads, kHeadDim}, {});
  *lost.mutable_rope_append()->mutable_new_value() = InlineTensor({1, 0, kKvHeads, kValueHeadDim}, {});
  EXPECT_THAT(client.Fuse(lost), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(client.DeleteKvCache("kvCaches/fuse"), IsOk());
}

TEST_F(FuseTest, ListsItsOperations) {
  const auto list = Connect().ListFusedOps();
  ASSERT_THAT(list, IsOk());
  ASSERT_EQ(list->ops_size(), kernels::fused::kNumOps);
  EXPECT_EQ(list->ops(0).name(), "layer_norm");
  EXPECT_THAT(list->ops(0).formula(), HasSubstr("sqrt(variance + epsilon)"));
}

TEST_F(FuseTest, TheServiceIsHealthyAndCounted) {
  const Client client = Connect();
  EXPECT_THAT(client.CheckHealth("ridgeline.v1.FusedService"), IsOk());
  ASSERT_THAT(client.Fuse(RandomLayerNorm({2, 4})), IsOk());
  const std::string metrics = support::HttpRequest("GET", daemon_->metrics_address(), "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("ridgeline_rpc_requests_total{code=\"OK\",method=\"ridgeline.v1.FusedService/Fuse\"}"));
  EXPECT_THAT(metrics, HasSubstr("operation=\"layer_norm\""));
}

}  // namespace
}  // namespace ridgeline::integration
