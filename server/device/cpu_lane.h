// A lane of the CPU device: translates device work into closures for the lane's worker.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/common/executor.h"
#include "kernels/kv_cache/kv_cache.h"
#include "server/device/caching_allocator.h"
#include "server/device/device.h"
#include "server/device/lane_progress.h"
#include "server/device/lane_worker.h"
#include "server/device/thread_pool.h"

namespace ridgeline::device {

class CpuLane final : public Lane {
 public:
  // `allocator`, `pool` and `progress` outlive the lane; `lane_idx` is its place in the allocator. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<CpuLane>> Create(int lane_idx, CachingAllocator& allocator, ThreadPool& pool,
                                                         LaneProgress& progress);

  absl::StatusOr<Buffer> Allocate(std::int64_t size_bytes) override;
  absl::Status Reserve(std::int64_t size_bytes, std::shared_ptr<const MemoryOwner> owner) override;
  void EndReservation() override;
  absl::StatusOr<Buffer> Upload(absl::Span<const HostSlice> slices, std::shared_ptr<const void> owner) override;
  absl::StatusOr<Buffer> UploadRandom(kernels::DataType type, std::int64_t elements, std::uint64_t seed, float mean,
                                      float standard_deviation) override;
  absl::StatusOr<std::vector<KernelPhase>> Attend(const kernels::attention::AttentionPlan& plan,
                                                  const kernels::attention::AttentionParams& params,
                                                  absl::Span<const kernels::attention::Sequence> sequences,
                                                  CancelToken cancel) override;
  absl::Status Fuse(const kernels::fused::FusedParams& params, kernels::fused::Mode mode, CancelToken cancel) override;
  absl::StatusOr<std::shared_ptr<const HostBuffer>> Download(Buffer buffer) override;
  absl::Status AppendKeyValue(const kernels::kv_cache::AppendParams& params) override;
  absl::Status GatherKeyValue(const kernels::kv_cache::GatherParams& params) override;
  absl::Status CopyPages(const kernels::kv_cache::CopyPagesParams& params) override;
  absl::Status Copy(Buffer& destination, const Buffer& source, std::int64_t size_bytes) override;
  absl::Status CopyFromHost(Buffer& destination, const void* source, std::int64_t size_bytes) override;
  absl::Status CopyToHost(void* destination, const Buffer& source, std::int64_t size_bytes) override;
  absl::Status Gemm(kernels::DataType type, std::int64_t m, std::int64_t n, std::int64_t k, const Buffer& a, const Buffer& b,
                    Buffer& c) override;
  absl::Status Run(const kernels::microbench::Workload& workload) override;
  absl::StatusOr<std::unique_ptr<Event>> Record() override;
  void OnComplete(absl::AnyInvocable<void(absl::Status)> done) override;

 private:
  CpuLane(int lane_idx, CachingAllocator& allocator, ThreadPool& pool, std::unique_ptr<LaneWorker> worker)
      : lane_idx_(lane_idx), allocator_(allocator), pool_(pool), worker_(std::move(worker)) {}

  absl::Status QueueCopy(void* destination, const void* source, std::int64_t size_bytes);
  // Queues a kernel; once `cancel` is set it starts no further task. Null: it runs to its end.
  void QueueKernel(absl::AnyInvocable<void(kernels::Executor&)> kernel, CancelToken cancel = nullptr);

  const int lane_idx_;
  CachingAllocator& allocator_;
  ThreadPool& pool_;
  std::unique_ptr<LaneWorker> worker_;
};

}  // namespace ridgeline::device
