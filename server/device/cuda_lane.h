// A lane of the CUDA device: a stream, and a thread that feeds it. Calls queue closures; the thread copies into staging memory
// and issues copies and launches in order, while the caller and other lanes go on.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/fused/row_schedule.h"
#include "kernels/kv_cache/kv_cache.h"
#include "kernels/microbench/workload_cuda.h"
#include "server/device/caching_allocator.h"
#include "server/device/completion_queue.h"
#include "server/device/cublas_library.h"
#include "server/device/cuda_context.h"
#include "server/device/cuda_event.h"
#include "server/device/cuda_handles.h"
#include "server/device/device.h"
#include "server/device/lane_progress.h"
#include "server/device/lane_worker.h"
#include "server/device/memory_source.h"
#include "server/device/plain_memory.h"
#include "server/device/staging_ring.h"
#include "server/device/thread_pool.h"

namespace ridgeline::device {

// What the lanes of a device share. All of it outlives them.
struct CudaLaneParts {
  CudaContext& context;
  MemorySource& device_memory;
  MemorySource& pinned_memory;
  CachingAllocator& device_allocator;
  CachingAllocator& pinned_allocator;
  ThreadPool& copy_threads;
  CompletionQueue& completions;
  const kernels::CublasFunctions& cublas;
  std::int64_t cublas_workspace_bytes;
  kernels::fused::CudaLimits fused_limits;
  std::int64_t merge_workspace_bytes;  // enough for any plan
};

class CudaLane final : public Lane {
 public:
  // `lane_idx` is its place in the allocators and in the completion queue, `progress` what it counts there. Errors:
  // RESOURCE_EXHAUSTED, UNAVAILABLE, INTERNAL.
  static absl::StatusOr<std::unique_ptr<CudaLane>> Create(int lane_idx, const CudaLaneParts& parts, LaneProgress& progress);

  ~CudaLane() override;  // waits for queued work

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
  absl::StatusOr<std::unique_ptr<Graph>> Capture(std::vector<kernels::microbench::Workload> workloads) override;
  absl::Status Replay(Graph& graph) override;
  absl::StatusOr<Buffer> AllocatePlain(PlainAllocator allocator, std::int64_t size_bytes) override;
  absl::Status Hold() override;
  absl::Status Release() override;
  absl::StatusOr<std::unique_ptr<Event>> Record() override;
  void OnComplete(absl::AnyInvocable<void(absl::Status)> done) override;

 private:
  CudaLane(int lane_idx, const CudaLaneParts& parts, LaneProgress& progress, CudaStream stream, Segment cublas_workspace,
           Segment merge_workspace, StagingRing staging, std::unique_ptr<CublasHandle> cublas);

  kernels::microbench::CudaSite site() const;

  // Queues work for the lane's thread. What it issues counts as completed when the stream has run it.
  void Queue(LaneWorker::Work work);
  absl::Status QueueHostCopy(void* destination, const void* source, std::int64_t size_bytes, cudaMemcpyKind direction);
  absl::StatusOr<std::vector<KernelPhase>> AttendStandard(const kernels::attention::AttentionPlan& plan,
                                                          const kernels::attention::AttentionParams& params,
                                                          absl::Span<const kernels::attention::Sequence> sequences,
                                                          CancelToken cancel);

  // On the lane's thread, or on that of a caller who ends a small batch:
  absl::Status LaunchWithMergeWorkspace(const kernels::attention::AttentionPlan& plan,
                                        kernels::attention::AttentionParams params);
  absl::Status CopyToDevice(absl::Span<const HostSlice> slices, char* destination);

  const int lane_idx_;
  CudaContext& context_;
  const kernels::fused::CudaLimits fused_limits_;
  CachingAllocator& device_allocator_;
  CachingAllocator& pinned_allocator_;
  LaneExecutor copy_executor_;
  CompletionQueue& completions_;
  LaneProgress& progress_;         // of the stream: what memory waits for
  LaneProgress issued_;            // of the thread
  std::int64_t upload_bytes_ = 0;  // of the batch that is being queued

  CudaStream stream_;
  EventPool events_;
  Segment cublas_workspace_;
  Segment merge_workspace_;                // see AttentionParams
  bool merge_workspace_is_clean_ = false;  // all ones once the stream gets there
  StagingRing staging_;
  std::unique_ptr<CublasHandle> cublas_;
  PlainMemory device_malloc_, stream_ordered_;
  Buffer gate_;  // a std::uint32_t in pinned memory: the last ticket that was let pass; of the first Hold
  std::uint32_t gate_ticket_ = 0;
  std::unique_ptr<LaneWorker> worker_;
};

}  // namespace ridgeline::device
