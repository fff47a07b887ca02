#include "server/device/cpu_lane.h"

#include <chrono>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/attention/flash/flash.h"
#include "kernels/attention/standard/standard.h"
#include "kernels/common/saturating.h"
#include "kernels/fused/fused_cpu.h"
#include "kernels/kv_cache/kv_cache.h"
#include "kernels/microbench/microbench.h"
#include "server/base/status_macros.h"
#include "server/device/gather_copy.h"

namespace ridgeline::device {
namespace {

using kernels::attention::Algorithm;
using kernels::attention::AttentionParams;
using kernels::attention::AttentionPlan;
using kernels::attention::Sequence;

class CpuEvent final : public Event {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit CpuEvent(std::shared_ptr<const TimePoint> time) : time_(std::move(time)) {}

  absl::Duration Since(const Event& earlier) const override {
    return absl::FromChrono(*time_ - *static_cast<const CpuEvent&>(earlier).time_);
  }

 private:
  const std::shared_ptr<const TimePoint> time_;  // written by the lane's thread; it may outlive the event
};

}  // namespace

absl::StatusOr<std::unique_ptr<CpuLane>> CpuLane::Create(int lane_idx, CachingAllocator& allocator, ThreadPool& pool,
                                                         LaneProgress& progress) {
  RIDGELINE_ASSIGN_OR_RETURN(auto worker, LaneWorker::Create(absl::StrCat("lane-", lane_idx), progress));
  return absl::WrapUnique(new CpuLane(lane_idx, allocator, pool, std::move(worker)));
}

absl::StatusOr<Buffer> CpuLane::Allocate(std::int64_t size_bytes) { return allocator_.Allocate(lane_idx_, size_bytes); }

absl::Status CpuLane::Reserve(std::int64_t size_bytes, std::shared_ptr<const MemoryOwner> owner) {
  return allocator_.Reserve(lane_idx_, size_bytes, std::move(owner));
}

void CpuLane::EndReservation() { allocator_.EndReservation(lane_idx_); }

absl::StatusOr<Buffer> CpuLane::Upload(absl::Span<const HostSlice> slices, std::shared_ptr<const void> owner) {
  std::int64_t size_bytes = 0;
  for (const HostSlice& slice : slices) size_bytes = kernels::SaturatingAdd(size_bytes, slice.size_bytes);
  RIDGELINE_ASSIGN_OR_RETURN(Buffer buffer, Allocate(size_bytes));
  QueueKernel([slices = absl::InlinedVector<HostSlice, 2>(slices.begin(), slices.end()), owner = std::move(owner),
               destination = buffer.data()](kernels::Executor& executor) { GatherCopy(slices, destination, executor); });
  return buffer;
}

absl::StatusOr<Buffer> CpuLane::UploadRandom(kernels::DataType type, std::int64_t elements, std::uint64_t seed, float mean,
                                             float standard_deviation) {
  RIDGELINE_ASSIGN_OR_RETURN(Buffer buffer, Allocate(kernels::SaturatingMultiply({elements, kernels::ElementBytes(type)})));
  QueueKernel([=, destination = buffer.data()](kernels::Executor& executor) {
    kernels::microbench::FillNormalOnCpu(type, elements, seed, mean, standard_deviation, destination, executor);
  });
  return buffer;
}

absl::StatusOr<std::vector<KernelPhase>> CpuLane::Attend(const AttentionPlan& plan, const AttentionParams& params,
                                                         absl::Span<const Sequence> /*sequences*/, CancelToken cancel) {
  const auto run = [plan, params](kernels::Executor& executor) {
    switch (plan.algorithm) {
      case Algorithm::kStandard:
        return kernels::attention::RunStandardOnCpu(plan, params, executor);
      case Algorithm::kFlash:
        return kernels::attention::RunFlashOnCpu(plan, params, executor);
    }
  };
  QueueKernel(run, std::move(cancel));
  return std::vector<KernelPhase>();
}

absl::Status CpuLane::Fuse(const kernels::fused::FusedParams& params, kernels::fused::Mode mode, CancelToken cancel) {
  QueueKernel([params, mode](kernels::Executor& executor) { kernels::fused::RunFusedOnCpu(params, mode, executor); },
              std::move(cancel));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const HostBuffer>> CpuLane::Download(Buffer buffer) {
  // Host memory is device memory here: the result is the buffer itself.
  return std::make_shared<const AllocatedHostBuffer>(std::move(buffer));
}

absl::Status CpuLane::AppendKeyValue(const kernels::kv_cache::AppendParams& params) {
  QueueKernel([params](kernels::Executor& executor) { kernels::kv_cache::AppendOnCpu(params, executor); });
  return absl::OkStatus();
}

absl::Status CpuLane::GatherKeyValue(const kernels::kv_cache::GatherParams& params) {
  QueueKernel([params](kernels::Executor& executor) { kernels::kv_cache::GatherOnCpu(params, executor); });
  return absl::OkStatus();
}

absl::Status CpuLane::CopyPages(const kernels::kv_cache::CopyPagesParams& params) {
  QueueKernel([params](kernels::Executor& executor) { kernels::kv_cache::CopyPagesOnCpu(params, executor); });
  return absl::OkStatus();
}

absl::Status CpuLane::Copy(Buffer& destination, const Buffer& source, std::int64_t size_bytes) {
  return QueueCopy(destination.data(), source.data(), size_bytes);
}

absl::Status CpuLane::CopyFromHost(Buffer& destination, const void* source, std::int64_t size_bytes) {
  return QueueCopy(destination.data(), source, size_bytes);
}

absl::Status CpuLane::CopyToHost(void* destination, const Buffer& source, std::int64_t size_bytes) {
  return QueueCopy(destination, source.data(), size_bytes);
}

absl::Status CpuLane::QueueCopy(void* destination, const void* source, std::int64_t size_bytes) {
  QueueKernel([=](kernels::Executor& executor) { kernels::microbench::CopyOnCpu(destination, source, size_bytes, executor); });
  return absl::OkStatus();
}

absl::Status CpuLane::Gemm(kernels::DataType type, std::int64_t m, std::int64_t n, std::int64_t k, const Buffer& a,
                           const Buffer& b, Buffer& c) {
  const std::int64_t workspace_bytes = kernels::microbench::GemmWorkspaceBytesOnCpu(type, m, n, k, pool_.num_threads());
  RIDGELINE_ASSIGN_OR_RETURN(Buffer workspace, Allocate(workspace_bytes));
  QueueKernel([=, a = a.data(), b = b.data(), c = static_cast<float*>(c.data()),
               workspace = std::move(workspace)](kernels::Executor& executor) {
    kernels::microbench::GemmOnCpu(type, m, n, k, a, b, c, workspace.data(), executor);
  });
  return absl::OkStatus();
}

absl::Status CpuLane::Run(const kernels::microbench::Workload& workload) {
  if (!kernels::microbench::RunsOnCpu(workload)) return Lane::Run(workload);
  QueueKernel([workload](kernels::Executor& executor) { kernels::microbench::RunWorkloadOnCpu(workload, executor); });
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Event>> CpuLane::Record() {
  auto time = std::make_shared<CpuEvent::TimePoint>();
  worker_->Queue([time] {
    *time = std::chrono::steady_clock::now();
    return absl::OkStatus();
  });
  return std::make_unique<CpuEvent>(std::move(time));
}

void CpuLane::OnComplete(absl::AnyInvocable<void(absl::Status)> done) { worker_->QueueCompletion(std::move(done)); }

void CpuLane::QueueKernel(absl::AnyInvocable<void(kernels::Executor&)> kernel, CancelToken cancel) {
  worker_->Queue([this, kernel = std::move(kernel), cancel = std::move(cancel)]() mutable {
    LaneExecutor executor(pool_, std::move(cancel));
    kernel(executor);
    return absl::OkStatus();
  });
}

}  // namespace ridgeline::device
