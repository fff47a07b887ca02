#include "server/engine/trace/traced_lane.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/notification.h"
#include "tests/support/flaky_device.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine {
namespace {

using ::testing::IsEmpty;

// Waits until the lane has run what is queued.
void Complete(device::Lane& lane) {
  base::Notification done;
  lane.OnComplete([&](const absl::Status&) { done.Notify(); });
  done.Wait();
}

TEST(TracedLane, TimesEachCopyAndKernelInOrder) {
  const std::unique_ptr<device::Device> device = MakeDevice(1);
  TracedLane lane(device->lane(0));
  const std::vector<float> numbers(1000, 1.0f);
  const device::HostSlice slice = {numbers.data(), 4000};
  ASSERT_OK_AND_ASSIGN(device::Buffer a, lane.Upload({&slice, 1}, nullptr));
  ASSERT_OK_AND_ASSIGN(device::Buffer b, lane.UploadRandom(kernels::DataType::kFloat32, 1000, 1, 0, 1));
  ASSERT_OK(lane.Copy(b, a, 4000));
  ASSERT_OK_AND_ASSIGN(const auto host, lane.Download(std::move(b)));
  Complete(lane);
  EXPECT_EQ(static_cast<const float*>(host->data())[999], 1.0f) << "it does what its lane does";

  const std::vector<DeviceSpan> spans = lane.Spans();
  ASSERT_EQ(spans.size(), 4);
  const char* const names[] = {"upload", "fill_normal", "copy", "download"};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(spans[i].name, names[i]);
    EXPECT_EQ(spans[i].kind, i == 0 || i == 3 ? SpanKind::kCopy : SpanKind::kKernel);
    EXPECT_GE(spans[i].duration, absl::ZeroDuration());
  }
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(spans[i - 1].begin - spans[i - 1].duration, spans[i].begin) << "one begins where the other ended";
  }
  EXPECT_EQ(spans[3].begin, spans[3].duration) << "the last ends at the end";
  EXPECT_EQ(spans[0].bytes, 4000);
}

TEST(TracedLane, NothingQueuedIsNoSpan) {
  const std::unique_ptr<device::Device> device = MakeDevice(1);
  TracedLane lane(device->lane(0));
  ASSERT_OK(lane.Allocate(100).status());
  Complete(lane);
  EXPECT_THAT(lane.Spans(), IsEmpty());
}

TEST(TracedLane, WhatFailsFailsAsWithoutIt) {
  support::FlakyDevice device(MakeDevice(1));
  TracedLane lane(device.lane(0));
  device.FailCall(1, absl::InternalError("broken"));  // behind the event that marks the beginning
  EXPECT_THAT(lane.UploadRandom(kernels::DataType::kFloat32, 10, 1, 0, 1).status(),
              support::StatusIs(absl::StatusCode::kInternal));
  Complete(lane);
  EXPECT_THAT(lane.Spans(), IsEmpty());
}

}  // namespace
}  // namespace ridgeline::engine
