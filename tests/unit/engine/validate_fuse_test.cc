// Every way in which a request for a fused operation can be wrong: the error names the field, comes at once, and costs nothing.
#include "server/engine/validate_fuse.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/engine_fixture.h"
#include "tests/unit/engine/fuse_requests.h"

namespace ridgeline::engine {
namespace {

using kernels::DataType;
using kernels::fused::Op;
using support::IsOk;
using support::StatusIs;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

// A request for the operation with all its tensors, that is all right.
FuseRequest Request(Op op) {
  FuseRequest request = SmallFuseRequest();
  request.op = op;
  request.other = RandomTensor({2, 3, 16}, 4);
  if (op == Op::kRope) request.input = RandomTensor({5, 2, 8}, 1);
  return request;
}

struct BadRequest {
  std::string name;
  Op op;
  std::function<void(FuseRequest&)> spoil;
  std::string field;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

std::vector<BadRequest> BadTensors() {
  using R = FuseRequest;
  constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
  return {
      {"no operation", Op::kGelu, [](R& r) { r.op.reset(); }, "op"},
      {"no input", Op::kLayerNorm, [](R& r) { r.input.reset(); }, "layer_norm.input"},
      {"no gate", Op::kSwiglu, [](R& r) { r.input.reset(); }, "swiglu.gate"},
      {"no storage", Op::kSoftmax, [](R& r) { r.input->storage = std::monostate(); }, "softmax.input"},
      {"no type", Op::kGelu, [](R& r) { r.input->data_type.reset(); }, "gelu.input.data_type"},
      {"integers", Op::kGelu, [](R& r) { r.input->data_type = DataType::kInt32; }, "gelu.input.data_type"},
      {"bytes", Op::kGelu, [](R& r) { r.input->data_type = DataType::kUint8; }, "gelu.input.data_type"},
      {"float8", Op::kGelu, [](R& r) { r.input->data_type = DataType::kFloat8E4M3; }, "gelu.input.data_type", kUnimplemented},
      {"shared memory", Op::kGelu, [](R& r) { r.input->storage = SharedMemorySlice(); }, "gelu.input.shared_memory",
       kUnimplemented},
      {"no dimension", Op::kGelu, [](R& r) { r.input->shape.clear(); }, "gelu.input.shape"},
      {"17 dimensions", Op::kGelu, [](R& r) { r.input->shape.assign(17, 1); }, "gelu.input.shape"},
      {"rows of nothing", Op::kGelu,
       [](R& r) {
         r.input->shape = {3, 0};
       },
       "gelu.input.shape"},
      {"rows too long", Op::kGelu,
       [](R& r) {
         r.input->shape = {1, 262145};
       },
       "gelu.input.shape"},
      {"negative extent", Op::kGelu,
       [](R& r) {
         r.input->shape = {-1, 8};
       },
       "gelu.input.shape"},
      {"two negative extents", Op::kGelu,
       [](R& r) {
         r.input->shape = {-1, -8};
       },
       "gelu.input.shape"},
      {"product overflows", Op::kGelu,
       [](R& r) {
         r.input->shape = {kHuge, kHuge, 8};
       },
       "gelu.input.shape"},
      {"bytes overflow", Op::kGelu,
       [](R& r) {
         r.input->shape = {kHuge / 8, 8};
       },
       "gelu.input.shape"},
      {"few bytes", Op::kGelu,
       [](R& r) {
         r.input = InlineTensor({2, 16}, DataType::kFloat32, {});
       },
       "gelu.input.inline_data"},
      {"mean is NaN", Op::kGelu, [](R& r) { r.input->storage = RandomFill{.mean = kNan}; }, "gelu.input.random.mean"},
      {"no residual", Op::kGeluAdd, [](R& r) { r.other.reset(); }, "gelu_add.residual"},
      {"other residual", Op::kAddRmsNorm,
       [](R& r) {
         r.other->shape = {3, 2, 16};
       },
       "add_rms_norm.residual.shape"},
      {"other type", Op::kAddLayerNorm, [](R& r) { r.other->data_type = DataType::kFloat16; },
       "add_layer_norm.residual.data_type"},
      {"no up", Op::kSwiglu, [](R& r) { r.other.reset(); }, "swiglu.up"},
      {"up has another rank", Op::kSwiglu,
       [](R& r) {
         r.other->shape = {6, 16};
       },
       "swiglu.up.shape"},
      {"no bias", Op::kBiasGelu, [](R& r) { r.bias.reset(); }, "bias_gelu.bias"},
      {"short bias", Op::kBiasGelu, [](R& r) { r.bias->shape = {15}; }, "bias_gelu.bias.shape"},
      {"square weight", Op::kRmsNorm,
       [](R& r) {
         r.weight->shape = {4, 4};
       },
       "rms_norm.weight.shape"},
      {"weight's type", Op::kRmsNorm, [](R& r) { r.weight->data_type = DataType::kBFloat16; }, "rms_norm.weight.data_type"},
      {"weight has no storage", Op::kLayerNorm, [](R& r) { r.weight->storage = std::monostate(); }, "layer_norm.weight"},
  };
}

std::vector<BadRequest> BadOptions() {
  using R = FuseRequest;
  constexpr Op kDropout = Op::kLayerNormGeluDropout;
  const auto positions = [](std::vector<std::int64_t> shape) { return InlineTensor(std::move(shape), DataType::kInt64, {}); };
  return {
      {"epsilon is negative", Op::kLayerNorm, [](R& r) { r.epsilon = -1e-9; }, "layer_norm.epsilon"},
      {"epsilon is NaN", Op::kAddRmsNorm, [](R& r) { r.epsilon = kNan; }, "add_rms_norm.epsilon"},
      {"epsilon is no float32", Op::kRmsNorm, [](R& r) { r.epsilon = 1e39; }, "rms_norm.epsilon"},
      {"probability is NaN", kDropout, [](R& r) { r.dropout.probability = kNan; }, "layer_norm_gelu_dropout.probability"},
      {"probability above 1", kDropout, [](R& r) { r.dropout.probability = 1.001; }, "layer_norm_gelu_dropout.probability"},
      {"probability below 0", kDropout, [](R& r) { r.dropout.probability = -1; }, "layer_norm_gelu_dropout.probability"},
      {"rope of one dimension", Op::kRope, [](R& r) { r.input->shape = {8}; }, "rope.input.shape"},
      {"no heads", Op::kRope,
       [](R& r) {
         r.input->shape = {4, 0, 8};
       },
       "rope.input.shape"},
      {"no head_dim", Op::kRope,
       [](R& r) {
         r.input->shape = {4, 2, 0};
       },
       "rope.input.shape"},
      {"long heads", Op::kRope,
       [](R& r) {
         r.input->shape = {4, 2, 1026};
       },
       "rope.input.shape"},
      {"many heads", Op::kRope,
       [](R& r) {
         r.input->shape = {4, 4096, 128};
       },
       "rope.input.shape"},
      {"heads overflow", Op::kRope,
       [](R& r) {
         r.input->shape = {0, kHuge, kHuge};
       },
       "rope.input.shape"},
      {"odd head", Op::kRope,
       [](R& r) {
         r.input->shape = {4, 2, 7};
       },
       "rope.rotary_dim"},
      {"odd rotary_dim", Op::kRope, [](R& r) { r.rotary_dim = 3; }, "rope.rotary_dim"},
      {"long rotary_dim", Op::kRope, [](R& r) { r.rotary_dim = 10; }, "rope.rotary_dim"},
      {"negative rotary_dim", Op::kRope, [](R& r) { r.rotary_dim = -2; }, "rope.rotary_dim"},
      {"base of 0", Op::kRope, [](R& r) { r.base = 0; }, "rope.base"},
      {"base is infinite", Op::kRope, [](R& r) { r.base = kInfinity; }, "rope.base"},
      {"base is NaN", Op::kRope, [](R& r) { r.base = kNan; }, "rope.base"},
      {"two sequences", Op::kRope,
       [](R& r) {
         r.input->shape = {2, 5, 2, 8};
       },
       "rope.positions"},
      {"few positions", Op::kRope, [=](R& r) { r.positions = positions({4}); }, "rope.positions.shape"},
      {"positions of heads", Op::kRope,
       [=](R& r) {
         r.positions = positions({5, 2});
       },
       "rope.positions.shape"},
      {"float positions", Op::kRope, [](R& r) { r.positions = InlineTensor({5}, DataType::kFloat32, {}); },
       "rope.positions.data_type"},
      {"no bytes of positions", Op::kRope, [=](R& r) { r.positions = positions({5}); }, "rope.positions.inline_data"},
      {"random positions", Op::kRope, [](R& r) { r.positions = RandomTensor({5}, 1, DataType::kInt64); },
       "rope.positions.random"},
  };
}

class ValidateFuseTest : public EngineFixture {
 protected:
  void SetUp() override { Build({}); }

  absl::Status Fuse(FuseRequest request) {
    FuseAnswer answer;
    engine_->Fuse(std::move(request), {.origin = {.request_id = "test"}}, answer.Callback());
    return answer.Wait().status();
  }
};

TEST_F(ValidateFuseTest, EveryErrorNamesTheFieldAndCostsNothing) {
  std::vector<BadRequest> all = BadTensors();
  for (BadRequest& bad : BadOptions()) all.push_back(std::move(bad));
  for (const BadRequest& bad : all) {
    SCOPED_TRACE(bad.name);
    FuseRequest request = Request(bad.op);
    bad.spoil(request);
    FuseAnswer answer;
    EXPECT_EQ(engine_->Fuse(std::move(request), {.origin = {.request_id = "test"}}, answer.Callback()), nullptr);
    ASSERT_TRUE(answer.arrived());
    EXPECT_THAT(answer.Wait(), StatusIs(bad.code));
    EXPECT_EQ(base::ErrorField(answer.Wait().status()), bad.field) << answer.Wait().status();
  }
  EXPECT_EQ(device_->num_calls(), 0);
  EXPECT_EQ(device_->memory_stats().total_allocation_count, 0);
}

TEST_F(ValidateFuseTest, WhatIsAllowedPasses) {
  for (int op = 0; op < kernels::fused::kNumOps; ++op) {
    if (static_cast<Op>(op) == Op::kRopeAppend) continue;
    EXPECT_THAT(Fuse(Request(static_cast<Op>(op))), IsOk()) << op;
  }
  FuseRequest ends = Request(Op::kLayerNormGeluDropout);
  ends.epsilon = 0;
  ends.dropout.probability = 1;
  ends.weight.reset();
  ends.bias.reset();
  EXPECT_THAT(Fuse(ends), IsOk());
  ends.dropout.probability = 0;
  EXPECT_THAT(Fuse(std::move(ends)), IsOk());
  FuseRequest longest = Request(Op::kSoftmax);
  longest.input->shape.assign(15, 1);
  longest.input->shape.push_back(262144);
  EXPECT_THAT(Fuse(std::move(longest)), IsOk());
  FuseRequest token = Request(Op::kRope);
  token.input->shape = {1, 1024};
  EXPECT_THAT(Fuse(token), IsOk()) << "a head of one token, which needs no position";
  token.input->shape = {1, 1, 7, 4, 64};
  EXPECT_THAT(Fuse(std::move(token)), IsOk()) << "one sequence, whatever is before it";
}

TEST_F(ValidateFuseTest, NoRowsAreLegalWhateverTheirNumberOfDimensions) {
  for (const auto& shape : {std::vector<std::int64_t>{0, 8}, {0, kHuge, 8}, {4, 0, 262144}}) {
    FuseRequest request = Request(Op::kAddLayerNorm);
    request.input->shape = request.other->shape = shape;
    request.weight->shape = request.bias->shape = {shape.back()};
    FuseAnswer answer;
    engine_->Fuse(std::move(request), {.origin = {.request_id = "test"}}, answer.Callback());
    ASSERT_THAT(answer.Wait(), IsOk());
    ASSERT_EQ(answer.Wait()->outputs.size(), 2u);
    EXPECT_EQ(answer.Wait()->outputs[0].shape, shape);
    EXPECT_EQ(answer.Wait()->outputs[0].data, nullptr);
  }
}

TEST_F(ValidateFuseTest, WhatMemoryCannotHoldIsRefusedWithTheNumbers) {
  FuseRequest request = Request(Op::kGelu);
  request.discard = true;
  request.input->shape = {1 << 20, 4096};  // 16 GiB
  absl::Status status = Fuse(request);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("32.0 GiB")));
  EXPECT_EQ(base::ErrorReason(status), base::kReasonOutOfMemory);
  // The chain takes more than the device has, the one kernel doesn't.
  request.mode = kernels::fused::Mode::kUnfused;
  request.input->shape = {6, 1 << 20, 4};  // 96 MiB
  status = Fuse(request);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("; fused it takes 192")));
  request.mode.reset();
  EXPECT_THAT(Fuse(request), IsOk());
  request.input->shape = {kHuge / 65536, 4096};
  EXPECT_THAT(Fuse(std::move(request)), StatusIs(absl::StatusCode::kResourceExhausted)) << "sums saturate";
}

TEST_F(ValidateFuseTest, AnAnswerThatTheCallerCannotTakeBackIsRefusedBeforeItIsComputed) {
  const std::int64_t output_bytes = 2 * 3 * 16 * 4, mask_bytes = 2 * 3 * 16;
  const auto fuse = [&](bool return_mask, bool discard) {
    FuseRequest request = Request(Op::kLayerNormGeluDropout);
    request.return_mask = return_mask;
    request.discard = discard;
    FuseAnswer answer;
    engine_->Fuse(std::move(request), {.origin = {.request_id = "test"}, .max_answer_bytes = output_bytes + mask_bytes - 1},
                  answer.Callback());
    return answer.Wait().status();
  };
  EXPECT_THAT(fuse(/*return_mask=*/false, /*discard=*/false), IsOk());
  EXPECT_THAT(fuse(/*return_mask=*/true, /*discard=*/true), IsOk());
  const std::int64_t calls = device_->num_calls();
  const absl::Status status = fuse(/*return_mask=*/true, /*discard=*/false);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("output.discard")));
  EXPECT_EQ(base::ErrorReason(status), base::kReasonMessageTooLarge);
  EXPECT_EQ(device_->num_calls(), calls) << "it was computed";
}

}  // namespace
}  // namespace ridgeline::engine
