// Fused operations through the engine: right answers, reports, cancellation, deadlines, faults at every call.
#include "server/engine/fuse.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/fused/op_info.h"
#include "server/base/error.h"
#include "server/engine/fused_ops.h"
#include "tests/support/fused_shapes.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/engine_fixture.h"
#include "tests/unit/engine/fuse_requests.h"

namespace ridgeline::engine {
namespace {

using kernels::DataType;
using kernels::fused::FusedShape;
using kernels::fused::Mode;
using kernels::fused::Op;
using support::FusedCase;
using support::IsOk;
using support::StatusIs;
using ::testing::HasSubstr;

class FuseTest : public EngineFixture {
 protected:
  void SetUp() override { Build({}); }

  std::shared_ptr<Call> Fuse(FuseRequest request, FuseAnswer answer, absl::Time deadline = absl::InfiniteFuture()) {
    return engine_->Fuse(std::move(request), {.origin = {.request_id = "test"}, .deadline = deadline}, answer.Callback());
  }
};

TEST_F(FuseTest, EveryOperationAndModeIsRight) {
  std::vector<FusedShape> shapes;
  for (const Op op : support::RowOps()) {
    for (const DataType type : support::kFusedTypes) {
      for (const FusedShape& shape : support::VariantsOf(support::ShapeOf(op, type, {5, 129}))) shapes.push_back(shape);
    }
  }
  for (FusedShape shape : support::RopeShapes(DataType::kFloat32)) {
    shapes.push_back(shape);
    shape.has_positions = true;
    shapes.push_back(shape);
  }
  for (const FusedShape& shape : shapes) {
    FusedCase fused_case(shape, /*seed=*/1);
    for (const Mode mode : support::kFusedModes) {
      FuseAnswer answer;
      Fuse(RequestOf(fused_case, mode), answer);
      ASSERT_THAT(answer.Wait(), IsOk()) << support::Describe(shape);
      EXPECT_TRUE(IsRight(fused_case, mode, *answer.Wait())) << support::Describe(shape);
    }
  }
}

TEST_F(FuseTest, ReportsWhatEachModeMoved) {
  FuseRequest request = SmallFuseRequest();
  request.input->shape = {1000, 16};
  constexpr std::int64_t kTensorBytes = 1000 * 16 * 4, kColumnBytes = 16 * 4;
  FuseAnswer fused, unfused;
  Fuse(request, fused);
  request.mode = Mode::kUnfused;
  Fuse(std::move(request), unfused);
  ASSERT_THAT(fused.Wait(), IsOk());
  ASSERT_THAT(unfused.Wait(), IsOk());
  const ExecutionReport& one = fused.Wait()->report;
  const ExecutionReport& chain = unfused.Wait()->report;
  EXPECT_EQ(fused.Wait()->kernel_count, 1);
  EXPECT_EQ(unfused.Wait()->kernel_count, 7);
  EXPECT_EQ(one.bytes, 2 * kTensorBytes + 2 * kColumnBytes);
  EXPECT_GT(chain.bytes, 8 * kTensorBytes);
  EXPECT_EQ(one.flops, chain.flops);
  EXPECT_EQ(one.workspace_bytes, 0);
  EXPECT_GT(chain.workspace_bytes, kTensorBytes);
  EXPECT_EQ(one.device, device_->info().name);
  EXPECT_EQ(one.kernel, "layer_norm_fused_cpu");
  EXPECT_EQ(chain.kernel, "layer_norm_unfused_cpu");
  EXPECT_FALSE(one.algorithm.has_value());
  EXPECT_EQ(one.bound, Bound::kMemory);
  EXPECT_GT(one.kernel_time, absl::ZeroDuration());
}

TEST_F(FuseTest, GivesMemoryBackAndDiscards) {
  FuseRequest request = SmallFuseRequest();
  request.discard = true;
  FuseAnswer answer;
  Fuse(std::move(request), answer);
  ASSERT_THAT(answer.Wait(), IsOk());
  EXPECT_TRUE(answer.Wait()->outputs.empty());
  EXPECT_GT(answer.Wait()->report.bytes, 0);
  EXPECT_TRUE(AllMemoryReturns(*device_));
}

TEST_F(FuseTest, LetsGoOfTheInputsOnceTheyAreUploaded) {
  auto bytes = std::make_shared<std::vector<std::byte>>(4 * 16 * 4);
  const std::weak_ptr<const void> watched = bytes;
  FuseRequest request = SmallFuseRequest();
  request.input = InlineTensor({4, 16}, DataType::kFloat32, *bytes);
  std::get<InlineData>(request.input->storage).owner = std::move(bytes);
  device_->HoldCompletions(0);
  FuseAnswer answer;
  const std::shared_ptr<Call> call = Fuse(std::move(request), answer);
  device_->AwaitHeldCompletion(0);
  EXPECT_TRUE(watched.expired()) << "something but the lane keeps them";
  device_->ReleaseCompletions(0);
  EXPECT_THAT(answer.Wait(), IsOk());
}

TEST_F(FuseTest, DropsWhatIsTooLateWhenItsTurnComes) {
  Answer running;
  FuseAnswer late;
  Occupy(running);
  Fuse(SmallFuseRequest(), late, clock_.Now() + absl::Seconds(1));
  clock_.Advance(absl::Seconds(2));
  device_->ReleaseCompletions(0);
  EXPECT_THAT(late.Wait(), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(FuseTest, CancelsWaitingAndRunningWork) {
  device_->HoldCompletions(0);
  FuseAnswer running, waiting;
  const std::shared_ptr<Call> first = Fuse(SmallFuseRequest(), running);
  device_->AwaitHeldCompletion(0);
  const std::shared_ptr<Call> second = Fuse(SmallFuseRequest(), waiting);
  second->Cancel();
  EXPECT_THAT(waiting.Wait(), StatusIs(absl::StatusCode::kCancelled));
  first->Cancel();
  EXPECT_THAT(running.Wait(), StatusIs(absl::StatusCode::kCancelled));
  device_->ReleaseCompletions(0);
  EXPECT_TRUE(AllMemoryReturns(*device_));
  FuseAnswer next;
  Fuse(SmallFuseRequest(), next);
  EXPECT_THAT(next.Wait(), IsOk());
}

TEST_F(FuseTest, TakesItsPlaceInTheBoundedQueue) {
  Build({.admission = {.max_queued_requests = 1}});
  Answer running;
  FuseAnswer waiting, refused;
  Occupy(running);
  Fuse(SmallFuseRequest(), waiting);
  EXPECT_EQ(Fuse(SmallFuseRequest(), refused), nullptr);
  EXPECT_EQ(base::ErrorReason(refused.Wait().status()), base::kReasonQueueFull);
  EXPECT_TRUE(base::RetryDelay(refused.Wait().status()).has_value());
  device_->ReleaseCompletions(0);
  EXPECT_THAT(waiting.Wait(), IsOk());
}

TEST_F(FuseTest, EveryCallOfTheDeviceMayFail) {
  // Between them: all tensors, all outputs, workspace.
  FuseRequest dropout = SmallFuseRequest();
  dropout.op = Op::kLayerNormGeluDropout;
  dropout.return_mask = true;
  dropout.mode = Mode::kUnfused;
  FuseRequest add = SmallFuseRequest();
  add.op = Op::kAddLayerNorm;
  add.other = RandomTensor({2, 3, 16}, 4);
  for (const FuseRequest& request : {dropout, add}) {
    const std::int64_t calls_before = device_->num_calls();
    FuseAnswer whole;
    Fuse(request, whole);
    ASSERT_THAT(whole.Wait(), IsOk());
    const std::int64_t num_calls = device_->num_calls() - calls_before;
    ASSERT_GT(num_calls, 12);
    for (std::int64_t n = 0; n < num_calls; ++n) {
      device_->FailCall(n, absl::InternalError("injected"));
      FuseAnswer failing, after;
      Fuse(request, failing);
      EXPECT_THAT(failing.Wait(), StatusIs(absl::StatusCode::kInternal, HasSubstr("injected"))) << "call " << n;
      Fuse(request, after);
      EXPECT_THAT(after.Wait(), IsOk()) << "after call " << n;
    }
  }
  EXPECT_TRUE(engine_->Drain(absl::Minutes(1)));
}

TEST_F(FuseTest, RunsAloneOnceMoreWhenMemoryRanOut) {
  Build({}, /*num_lanes=*/2);
  Answer other;
  Occupy(other, /*lane=*/0);
  FuseAnswer answer;
  device_->FailCall(1, base::WithReason(absl::ResourceExhaustedError("injected"), base::kReasonOutOfMemory));
  Fuse(SmallFuseRequest(), answer);
  device_->ReleaseCompletions(0);
  EXPECT_THAT(answer.Wait(), IsOk());
}

TEST_F(FuseTest, CountsWhatItDid) {
  FuseAnswer fused, bad;
  Fuse(SmallFuseRequest(), fused);
  ASSERT_THAT(fused.Wait(), IsOk());
  Fuse({}, bad);
  ASSERT_TRUE(engine_->Drain(absl::Minutes(1)));
  const std::string text = metrics_.Serialize();
  EXPECT_THAT(text, HasSubstr("ridgeline_requests_total{operation=\"fuse\",outcome=\"ok\"} 1"));
  EXPECT_THAT(text, HasSubstr("ridgeline_requests_total{operation=\"fuse\",outcome=\"invalid_argument\"} 1"));
  for (int op = 0; op < kernels::fused::kNumOps; ++op) {
    for (const Mode mode : support::kFusedModes) {
      const bool ran = static_cast<Op>(op) == Op::kLayerNorm && mode == Mode::kFused;
      EXPECT_THAT(text, HasSubstr(absl::StrCat("ridgeline_kernel_seconds_count{algorithm=\"", Name(mode), "\",device=\"",
                                               device_->info().name, "\",operation=\"", Name(static_cast<Op>(op)), "\"} ",
                                               ran ? 1 : 0)));
    }
  }
}

TEST(FusedOpsTest, DescribesEveryOperation) {
  ASSERT_EQ(FusedOps().size(), kernels::fused::kNumOps);
  for (const FusedOpDescription& op : FusedOps()) {
    SCOPED_TRACE(op.name);
    EXPECT_EQ(op.name, kernels::fused::Name(op.op));
    EXPECT_FALSE(op.inputs.empty());
    EXPECT_GT(op.unfused_kernel_count, 2);
    for (const FusedOpTensor& input : op.inputs) {
      EXPECT_TRUE(input.optional || absl::StrContains(op.formula, input.name)) << input.name;
    }
    for (const FusedOpTensor& output : op.outputs) {
      EXPECT_TRUE(output.name == "mask" || absl::StrContains(op.formula, output.name + " =")) << output.name;
    }
  }
}

}  // namespace
}  // namespace ridgeline::engine
