// One attention call on a lane that computes nothing and whose clock the test can read: times and phases of the report.
#include "server/engine/attend.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine {
namespace {

using device::Buffer;
using device::Event;

class TimedEvent final : public Event {
 public:
  explicit TimedEvent(absl::Duration time) : time_(time) {}
  absl::Duration Since(const Event& earlier) const override { return time_ - static_cast<const TimedEvent&>(earlier).time_; }

 private:
  const absl::Duration time_;
};

// Each event is recorded twice as long after the lane's start as the one before: 1 ms, 2 ms, 4 ms and so on. A kernel of three
// phases.
class TimedLane final : public device::Lane {
 public:
  absl::StatusOr<Buffer> Allocate(std::int64_t) override { return Buffer(); }
  absl::Status Reserve(std::int64_t, std::shared_ptr<const device::MemoryOwner>) override { return absl::OkStatus(); }
  void EndReservation() override {}
  absl::StatusOr<Buffer> Upload(absl::Span<const device::HostSlice>, std::shared_ptr<const void>) override { return Buffer(); }
  absl::StatusOr<Buffer> UploadRandom(kernels::DataType, std::int64_t, std::uint64_t, float, float) override {
    return Buffer();
  }
  absl::StatusOr<std::vector<device::KernelPhase>> Attend(const kernels::attention::AttentionPlan&,
                                                          const kernels::attention::AttentionParams&,
                                                          absl::Span<const kernels::attention::Sequence>,
                                                          device::CancelToken) override {
    std::vector<device::KernelPhase> phases;
    for (const char* name : {"scores", "softmax", "output"}) phases.push_back({name, NextEvent()});
    return phases;
  }
  absl::Status Fuse(const kernels::fused::FusedParams&, kernels::fused::Mode, device::CancelToken) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::shared_ptr<const device::HostBuffer>> Download(Buffer) override { return nullptr; }
  absl::Status AppendKeyValue(const kernels::kv_cache::AppendParams&) override { return absl::OkStatus(); }
  absl::Status GatherKeyValue(const kernels::kv_cache::GatherParams&) override { return absl::OkStatus(); }
  absl::Status CopyPages(const kernels::kv_cache::CopyPagesParams&) override { return absl::OkStatus(); }
  absl::Status Copy(Buffer&, const Buffer&, std::int64_t) override { return absl::OkStatus(); }
  absl::Status CopyFromHost(Buffer&, const void*, std::int64_t) override { return absl::OkStatus(); }
  absl::Status CopyToHost(void*, const Buffer&, std::int64_t) override { return absl::OkStatus(); }
  absl::Status Gemm(kernels::DataType, std::int64_t, std::int64_t, std::int64_t, const Buffer&, const Buffer&,
                    Buffer&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Event>> Record() override { return NextEvent(); }
  void OnComplete(absl::AnyInvocable<void(absl::Status)> done) override { done(absl::OkStatus()); }

 private:
  std::unique_ptr<Event> NextEvent() { return std::make_unique<TimedEvent>(std::exchange(now_, now_ * 2)); }

  absl::Duration now_ = absl::Milliseconds(1);
};

TEST(AttendWorkTest, TimesAndPhasesComeFromTheLanesEvents) {
  const std::unique_ptr<device::Device> device = MakeDevice(/*num_lanes=*/1);
  const Roofline roofline = MadeUpRoofline();
  base::MetricsRegistry registry;
  const EngineMetrics metrics(registry, *device, roofline);
  ASSERT_OK_AND_ASSIGN(AttendProblem problem, ValidateAttend(SmallRequest()));
  ASSERT_OK_AND_ASSIGN(kernels::attention::AttentionPlan plan,
                       device->PlanAttention(problem.shape, problem.sequences, problem.algorithm));
  Answer answer;
  const std::unique_ptr<Work> work =
      MakeAttendWork(std::move(problem), std::move(plan), answer.Callback(), {device->info(), roofline, metrics});
  TimedLane lane;
  ASSERT_OK(work->Begin(/*queue_time=*/absl::Milliseconds(5)));
  Work* const members[] = {work.get()};
  const std::unique_ptr<Launch> launch = work->MakeLaunch(members);
  ASSERT_OK(launch->Queue(lane, /*cancel=*/nullptr));
  const absl::Status outcomes[] = {absl::OkStatus()};
  launch->Release(outcomes);
  work->Finish(absl::OkStatus());

  ASSERT_OK(answer.Wait());
  const ExecutionReport& report = answer.Wait()->report;
  // Events at 1 (begin), 2 (uploaded), 4, 8, 16 (phases), 32 (computed) and 64 ms (downloaded).
  EXPECT_EQ(report.queue_time, absl::Milliseconds(5));
  EXPECT_EQ(report.upload_time, absl::Milliseconds(1));
  EXPECT_EQ(report.kernel_time, absl::Milliseconds(30));
  EXPECT_EQ(report.download_time, absl::Milliseconds(32));
  ASSERT_EQ(report.kernel_phases.size(), 3u);
  EXPECT_EQ(report.kernel_phases[0].name, "scores");
  EXPECT_EQ(report.kernel_phases[0].time, absl::Milliseconds(2));
  EXPECT_EQ(report.kernel_phases[1].name, "softmax");
  EXPECT_EQ(report.kernel_phases[1].time, absl::Milliseconds(4));
  EXPECT_EQ(report.kernel_phases[2].name, "output");
  EXPECT_EQ(report.kernel_phases[2].time, absl::Milliseconds(8));
}

}  // namespace
}  // namespace ridgeline::engine
