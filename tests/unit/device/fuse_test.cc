// Fused operations on a lane.
#include <atomic>
#include <cstdint>
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
#include "tests/unit/device/lane_io.h"

namespace ridgeline::device {
namespace {

using kernels::fused::FusedParams;
using kernels::fused::FusedShape;
using kernels::fused::Mode;
using kernels::fused::Op;
using ::testing::ElementsAre;
using ::testing::FloatNear;

constexpr FusedShape kShape = {.op = Op::kRmsNorm, .num_rows = 2, .row_elems = 2, .epsilon = 0, .dropout = {}, .rope = {}};

class LaneFuseTest : public DeviceTest {
 protected:
  // What is in the output after the operation, which held 7s before.
  std::vector<float> Fuse(Mode mode, CancelToken cancel) {
    const Buffer input = Upload<float>(lane(), {3, 4, 6, -8});
    Buffer output = Upload<float>(lane(), {7, 7, 7, 7});
    absl::StatusOr<Buffer> workspace = lane().Allocate(kernels::fused::WorkspaceBytes(kShape, mode));
    EXPECT_OK(workspace);
    const FusedParams params = {
        .shape = kShape, .input = input.data(), .output = output.data(), .workspace = workspace->data()};
    EXPECT_OK(lane().Fuse(params, mode, std::move(cancel)));
    return Download(lane(), std::move(output));
  }

  Lane& lane() { return device_->lane(0); }
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
