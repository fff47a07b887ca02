// Fused operations on a lane.
#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/fused/cost.h"
#include "kernels/fused/fused.h"
#include "server/device/device.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/device_under_test.h"

namespace ridgeline::device {
namespace {

using kernels::fused::FusedParams;
using kernels::fused::FusedShape;
using kernels::fused::Mode;
using kernels::fused::Op;
using ::testing::ElementsAre;
using ::testing::FloatNear;

constexpr FusedShape kShape = {.op = Op::kRmsNorm, .num_rows = 2, .row_elems = 2, .epsilon = 0, .dropout = {}, .rope = {}};

absl::Status Complete(Lane& lane) {
  std::promise<absl::Status> status;
  lane.OnComplete([&status](absl::Status s) { status.set_value(std::move(s)); });
  return status.get_future().get();
}

class LaneFuseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = CreateDeviceUnderTest(std::int64_t{256} << 20);
    if (absl::IsFailedPrecondition(device.status())) GTEST_SKIP() << device.status().message();
    ASSERT_OK(device);
    device_ = *std::move(device);
  }

  Buffer Upload(const std::vector<float>& values) {
    const auto owner = std::make_shared<const std::vector<float>>(values);
    const HostSlice slice = {owner->data(), static_cast<std::int64_t>(owner->size() * sizeof(float))};
    absl::StatusOr<Buffer> buffer = lane().Upload({&slice, 1}, owner);
    EXPECT_OK(buffer);
    return buffer.ok() ? *std::move(buffer) : Buffer();
  }

  // What is in the output after the operation, which held 7s before.
  std::vector<float> Fuse(Mode mode, CancelToken cancel) {
    const Buffer input = Upload({3, 4, 6, -8});
    Buffer output = Upload({7, 7, 7, 7});
    absl::StatusOr<Buffer> workspace = lane().Allocate(kernels::fused::WorkspaceBytes(kShape, mode));
    EXPECT_OK(workspace);
    const FusedParams params = {
        .shape = kShape, .input = input.data(), .output = output.data(), .workspace = workspace->data()};
    EXPECT_OK(lane().Fuse(params, mode, std::move(cancel)));
    absl::StatusOr<std::shared_ptr<const HostBuffer>> result = lane().Download(std::move(output));
    EXPECT_OK(result);
    EXPECT_OK(Complete(lane()));
    const auto* values = static_cast<const float*>((*result)->data());
    return std::vector<float>(values, values + 4);
  }

  Lane& lane() { return device_->lane(0); }

  std::unique_ptr<Device> device_;
};

TEST_F(LaneFuseTest, BothModesComputeTheSame) {
  const float root = 1.41421356F;
  for (const Mode mode : {Mode::kFused, Mode::kUnfused}) {
    EXPECT_THAT(Fuse(mode, nullptr), ElementsAre(FloatNear(0.6F * root, 1e-6), FloatNear(0.8F * root, 1e-6),
                                                 FloatNear(0.6F * root, 1e-6), FloatNear(-0.8F * root, 1e-6)));
  }
}

TEST_F(LaneFuseTest, WhatNobodyWantsIsSkipped) {
  for (const Mode mode : {Mode::kFused, Mode::kUnfused}) {
    EXPECT_THAT(Fuse(mode, std::make_shared<std::atomic<bool>>(true)), ElementsAre(7, 7, 7, 7)) << Name(mode);
  }
}

}  // namespace
}  // namespace ridgeline::device
