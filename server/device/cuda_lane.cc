#include "server/device/cuda_lane.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/attention/cascade/cascade_cuda.h"
#include "kernels/attention/decode/decode_cuda.h"
#include "kernels/attention/flash/flash_cuda.h"
#include "kernels/attention/standard/standard_cuda.h"
#include "kernels/common/saturating.h"
#include "kernels/fused/fused_cuda.h"
#include "kernels/kv_cache/kv_cache_cuda.h"
#include "kernels/microbench/gate_cuda.h"
#include "kernels/microbench/microbench_cuda.h"
#include "kernels/microbench/workload_cuda.h"
#include "server/base/status_macros.h"
#include "server/device/cuda_graph.h"
#include "server/device/gather_copy.h"
#include "server/device/slice_cursor.h"

namespace ridgeline::device {
namespace {

using kernels::attention::Algorithm;
using kernels::attention::AttentionParams;
using kernels::attention::AttentionPlan;
using kernels::attention::Sequence;

// Of standard attention, in order; standard_cuda.h has the names.
constexpr std::array<const char*, 3> kStandardPhases = {"scores", "softmax", "values"};

// Batches that upload no more than this are issued by the thread that queued them: the calls to CUDA take less time than waking
// the lane's thread would.
constexpr std::int64_t kSmallUploadBytes = std::int64_t{64} << 10;

using PhaseEvents = std::array<PooledEvent, kStandardPhases.size()>;

bool IsUnwanted(const CancelToken& cancel) { return cancel != nullptr && cancel->load(std::memory_order_relaxed); }

// Records the event of the phase that has ended.
kernels::attention::PhaseEnd RecordPhases(const PhaseEvents& events, cudaStream_t stream) {
  return [&events, stream](const char* phase) {
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (std::strcmp(phase, kStandardPhases[i]) == 0) return cudaEventRecord(events[i]->get(), stream);
    }
    return cudaErrorInvalidValue;  // our own mistake: a phase that the report does not know
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaLane>> CudaLane::Create(int lane_idx, const CudaLaneParts& parts, LaneProgress& progress) {
  RIDGELINE_ASSIGN_OR_RETURN(CudaStream stream, CudaStream::Create(parts.context));
  RIDGELINE_ASSIGN_OR_RETURN(Segment workspace, Segment::Map(parts.device_memory, parts.cublas_workspace_bytes));
  RIDGELINE_ASSIGN_OR_RETURN(Segment merge_workspace, Segment::Map(parts.device_memory, parts.merge_workspace_bytes));
  RIDGELINE_ASSIGN_OR_RETURN(StagingRing staging, StagingRing::Create(parts.context, parts.pinned_memory, stream.get()));
  RIDGELINE_ASSIGN_OR_RETURN(
      auto cublas, CublasHandle::Create(parts.context, parts.cublas, stream.get(), workspace.data(), workspace.size_bytes()));
  auto lane = absl::WrapUnique(new CudaLane(lane_idx, parts, progress, std::move(stream), std::move(workspace),
                                            std::move(merge_workspace), std::move(staging), std::move(cublas)));
  RIDGELINE_ASSIGN_OR_RETURN(lane->worker_, LaneWorker::Create(absl::StrCat("lane-", lane_idx), lane->issued_));
  return lane;
}

CudaLane::CudaLane(int lane_idx, const CudaLaneParts& parts, LaneProgress& progress, CudaStream stream,
                   Segment cublas_workspace, Segment merge_workspace, StagingRing staging, std::unique_ptr<CublasHandle> cublas)
    : lane_idx_(lane_idx),
      context_(parts.context),
      fused_limits_(parts.fused_limits),
      device_allocator_(parts.device_allocator),
      pinned_allocator_(parts.pinned_allocator),
      copy_executor_(parts.copy_threads),
      completions_(parts.completions),
      progress_(progress),
      stream_(std::move(stream)),
      events_(parts.context),
      cublas_workspace_(std::move(cublas_workspace)),
      merge_workspace_(std::move(merge_workspace)),
      staging_(std::move(staging)),
      cublas_(std::move(cublas)),
      device_malloc_(context_, PlainAllocator::kDeviceMalloc, stream_.get()),
      stream_ordered_(context_, PlainAllocator::kStreamOrdered, stream_.get()) {}

CudaLane::~CudaLane() {
  worker_.reset();
  // Not through the context, which refuses once the device is lost: what was issued uses the lane's memory. A device that is
  // really lost returns at once.
  (void)cudaStreamSynchronize(stream_.get());
}

absl::StatusOr<Buffer> CudaLane::Allocate(std::int64_t size_bytes) {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  return device_allocator_.Allocate(lane_idx_, size_bytes);
}

absl::Status CudaLane::Reserve(std::int64_t size_bytes, std::shared_ptr<const MemoryOwner> owner) {
  return device_allocator_.Reserve(lane_idx_, size_bytes, std::move(owner));
}

void CudaLane::EndReservation() { device_allocator_.EndReservation(lane_idx_); }

absl::StatusOr<Buffer> CudaLane::Upload(absl::Span<const HostSlice> slices, std::shared_ptr<const void> owner) {
  std::int64_t size_bytes = 0;
  for (const HostSlice& slice : slices) size_bytes = kernels::SaturatingAdd(size_bytes, slice.size_bytes);
  RIDGELINE_ASSIGN_OR_RETURN(Buffer buffer, Allocate(size_bytes));
  upload_bytes_ = kernels::SaturatingAdd(upload_bytes_, size_bytes);
  Queue([this, slices = absl::InlinedVector<HostSlice, 2>(slices.begin(), slices.end()), owner = std::move(owner),
         destination = static_cast<char*>(buffer.data())] { return CopyToDevice(slices, destination); });
  return buffer;
}

absl::StatusOr<Buffer> CudaLane::UploadRandom(kernels::DataType type, std::int64_t elements, std::uint64_t seed, float mean,
                                              float standard_deviation) {
  RIDGELINE_ASSIGN_OR_RETURN(Buffer buffer, Allocate(kernels::SaturatingMultiply({elements, kernels::ElementBytes(type)})));
  if (elements == 0) return buffer;
  Queue([=, this, destination = buffer.data()] {
    return RIDGELINE_CUDA_CALL(context_, kernels::microbench::LaunchFillNormal, type, elements, seed, mean, standard_deviation,
                               destination, stream_.get());
  });
  return buffer;
}

absl::StatusOr<std::vector<KernelPhase>> CudaLane::Attend(const AttentionPlan& plan, const AttentionParams& params,
                                                          absl::Span<const Sequence> sequences, CancelToken cancel) {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  if (plan.algorithm == Algorithm::kStandard) return AttendStandard(plan, params, sequences, std::move(cancel));
  Queue([this, plan, params, cancel = std::move(cancel)] {
    if (IsUnwanted(cancel)) return absl::OkStatus();
    if (plan.merge_workspace_bytes > 0 || plan.cascade != nullptr) return LaunchWithMergeWorkspace(plan, params);
    return RIDGELINE_CUDA_CALL(context_, kernels::attention::LaunchFlash, plan, params, stream_.get());
  });
  return std::vector<KernelPhase>();
}

absl::Status CudaLane::LaunchWithMergeWorkspace(const AttentionPlan& plan, AttentionParams params) {
  if (!merge_workspace_is_clean_) {
    RIDGELINE_RETURN_IF_ERROR(RIDGELINE_CUDA_CALL(context_, cudaMemsetAsync, merge_workspace_.data(), 0xff,
                                                  static_cast<std::size_t>(merge_workspace_.size_bytes()), stream_.get()));
  }
  merge_workspace_is_clean_ = false;  // what a launch that fails leaves is anybody's guess
  params.merge_workspace = merge_workspace_.data();
  if (plan.cascade != nullptr) {
    RIDGELINE_RETURN_IF_ERROR(RIDGELINE_CUDA_CALL(context_, kernels::attention::LaunchCascade, plan, params, stream_.get()));
  } else if (plan.decode.num_blocks > 0) {
    RIDGELINE_RETURN_IF_ERROR(RIDGELINE_CUDA_CALL(context_, kernels::attention::LaunchDecode, plan, params, stream_.get()));
  } else {
    RIDGELINE_RETURN_IF_ERROR(RIDGELINE_CUDA_CALL(context_, kernels::attention::LaunchFlash, plan, params, stream_.get()));
  }
  merge_workspace_is_clean_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<KernelPhase>> CudaLane::AttendStandard(const AttentionPlan& plan, const AttentionParams& params,
                                                                  absl::Span<const Sequence> sequences, CancelToken cancel) {
  std::vector<KernelPhase> phases;
  PhaseEvents events;
  for (std::size_t i = 0; i < events.size(); ++i) {
    RIDGELINE_ASSIGN_OR_RETURN(events[i], events_.Take());
    phases.push_back({kStandardPhases[i], MakeLaneEvent(context_, events[i])});
  }
  Queue([this, plan, params, events, cancel = std::move(cancel),
         sequences = std::vector<Sequence>(sequences.begin(), sequences.end())] {
    if (IsUnwanted(cancel)) return absl::OkStatus();
    return RIDGELINE_CUDA_CALL(context_, kernels::attention::LaunchStandard, plan, params, sequences.data(), cublas_->view(),
                               stream_.get(), RecordPhases(events, stream_.get()));
  });
  return phases;
}

absl::Status CudaLane::Fuse(const kernels::fused::FusedParams& params, kernels::fused::Mode mode, CancelToken cancel) {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  Queue([this, params, mode, cancel = std::move(cancel)] {
    if (IsUnwanted(cancel)) return absl::OkStatus();
    return RIDGELINE_CUDA_CALL(context_, kernels::fused::LaunchFused, params, mode, fused_limits_, stream_.get());
  });
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const HostBuffer>> CudaLane::Download(Buffer buffer) {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  RIDGELINE_ASSIGN_OR_RETURN(Buffer pinned, pinned_allocator_.Allocate(lane_idx_, buffer.size_bytes()));
  const auto result = std::make_shared<const AllocatedHostBuffer>(std::move(pinned));
  if (result->size_bytes() == 0) return result;
  // The buffer goes back to the pool once the copy is issued, on the same stream as whatever uses it next. The result may go
  // before it is written: only later copies of this lane's write to its memory, so they come behind.
  Queue([this, from = std::move(buffer), to = const_cast<void*>(result->data())] {
    return RIDGELINE_CUDA_CALL(context_, cudaMemcpyAsync, to, from.data(), static_cast<std::size_t>(from.size_bytes()),
                               cudaMemcpyDeviceToHost, stream_.get());
  });
  return result;
}

absl::Status CudaLane::AppendKeyValue(const kernels::kv_cache::AppendParams& params) {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  Queue([this, params] { return RIDGELINE_CUDA_CALL(context_, kernels::kv_cache::LaunchAppend, params, stream_.get()); });
  return absl::OkStatus();
}

absl::Status CudaLane::GatherKeyValue(const kernels::kv_cache::GatherParams& params) {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  Queue([this, params] { return RIDGELINE_CUDA_CALL(context_, kernels::kv_cache::LaunchGather, params, stream_.get()); });
  return absl::OkStatus();
}

absl::Status CudaLane::CopyPages(const kernels::kv_cache::CopyPagesParams& params) {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  Queue([this, params] { return RIDGELINE_CUDA_CALL(context_, kernels::kv_cache::LaunchCopyPages, params, stream_.get()); });
  return absl::OkStatus();
}

absl::Status CudaLane::Copy(Buffer& destination, const Buffer& source, std::int64_t size_bytes) {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  Queue([this, to = destination.data(), from = source.data(), size_bytes] {
    return RIDGELINE_CUDA_CALL(context_, kernels::microbench::LaunchCopy, to, from, size_bytes, stream_.get());
  });
  return absl::OkStatus();
}

absl::Status CudaLane::CopyFromHost(Buffer& destination, const void* source, std::int64_t size_bytes) {
  return QueueHostCopy(destination.data(), source, size_bytes, cudaMemcpyHostToDevice);
}

absl::Status CudaLane::CopyToHost(void* destination, const Buffer& source, std::int64_t size_bytes) {
  return QueueHostCopy(destination, source.data(), size_bytes, cudaMemcpyDeviceToHost);
}

absl::Status CudaLane::QueueHostCopy(void* destination, const void* source, std::int64_t size_bytes, cudaMemcpyKind direction) {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  // CUDA holds up the thread that issues a copy of pageable memory: that be the lane's own.
  upload_bytes_ = kernels::SaturatingAdd(upload_bytes_, size_bytes);
  Queue([=, this] {
    return RIDGELINE_CUDA_CALL(context_, cudaMemcpyAsync, destination, source, static_cast<std::size_t>(size_bytes), direction,
                               stream_.get());
  });
  return absl::OkStatus();
}

absl::Status CudaLane::Gemm(kernels::DataType type, std::int64_t m, std::int64_t n, std::int64_t k, const Buffer& a,
                            const Buffer& b, Buffer& c) {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  Queue([=, this, a = a.data(), b = b.data(), c = static_cast<float*>(c.data())] {
    return RIDGELINE_CUDA_CALL(context_, kernels::microbench::LaunchGemm, type, m, n, k, a, b, c, cublas_->view());
  });
  return absl::OkStatus();
}

absl::Status CudaLane::Run(const kernels::microbench::Workload& workload) {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  if (!kernels::microbench::RunsOnCuda(workload)) return Lane::Run(workload);
  Queue([this, workload] { return RIDGELINE_CUDA_CALL(context_, kernels::microbench::LaunchWorkload, workload, site()); });
  return absl::OkStatus();
}

kernels::microbench::CudaSite CudaLane::site() const {
  return {.num_sms = fused_limits_.num_sms,
          .compute_capability = fused_limits_.compute_capability,
          .cublas = cublas_->view(),
          .stream = stream_.get()};
}

absl::StatusOr<std::unique_ptr<Graph>> CudaLane::Capture(std::vector<kernels::microbench::Workload> workloads) {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  auto graph = std::make_unique<CudaGraph>(context_);
  Queue([this, graph = graph.get(), workloads = std::move(workloads)] { return graph->Capture(workloads, site()); });
  return graph;
}

absl::Status CudaLane::Replay(Graph& graph) {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  Queue([this, &graph = static_cast<CudaGraph&>(graph)] { return graph.Launch(stream_.get()); });
  return absl::OkStatus();
}

absl::StatusOr<Buffer> CudaLane::AllocatePlain(PlainAllocator allocator, std::int64_t size_bytes) {
  return (allocator == PlainAllocator::kDeviceMalloc ? device_malloc_ : stream_ordered_).Allocate(size_bytes);
}

absl::Status CudaLane::Hold() {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  if (gate_.size_bytes() == 0) {
    RIDGELINE_ASSIGN_OR_RETURN(gate_, pinned_allocator_.Allocate(lane_idx_, sizeof(std::uint32_t)));
    *static_cast<std::uint32_t*>(gate_.data()) = 0;
  }
  Queue([this, opened = static_cast<const std::uint32_t*>(gate_.data()), ticket = ++gate_ticket_] {
    return RIDGELINE_CUDA_CALL(context_, kernels::microbench::LaunchGate, opened, ticket, stream_.get());
  });
  return absl::OkStatus();
}

absl::Status CudaLane::Release() {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  Queue([opened = static_cast<std::uint32_t*>(gate_.data()), ticket = gate_ticket_] {
    std::atomic_ref<std::uint32_t>(*opened).store(ticket, std::memory_order_release);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Event>> CudaLane::Record() {
  RIDGELINE_RETURN_IF_ERROR(context_.loss().status());
  RIDGELINE_ASSIGN_OR_RETURN(PooledEvent event, events_.Take());
  Queue([this, event] { return RIDGELINE_CUDA_CALL(context_, cudaEventRecord, event->get(), stream_.get()); });
  return MakeLaneEvent(context_, std::move(event));
}

void CudaLane::OnComplete(absl::AnyInvocable<void(absl::Status)> done) {
  const std::int64_t num_items = progress_.queued.fetch_add(1, std::memory_order_release) + 1;
  auto post = [this, num_items, done = std::move(done)](absl::Status issued) mutable {
    completions_.Post(lane_idx_, stream_.get(), num_items, std::move(issued), std::move(done));
  };
  if (std::exchange(upload_bytes_, 0) <= kSmallUploadBytes) {
    worker_->RunOrQueueCompletion(std::move(post));
  } else {
    worker_->QueueCompletion(std::move(post));
  }
}

void CudaLane::Queue(LaneWorker::Work work) {
  progress_.queued.fetch_add(1, std::memory_order_release);
  worker_->Queue(std::move(work));
}

absl::Status CudaLane::CopyToDevice(absl::Span<const HostSlice> slices, char* destination) {
  std::int64_t left_bytes = 0;
  for (const HostSlice& slice : slices) left_bytes += slice.size_bytes;
  SliceCursor cursor(slices);
  // The device reads a piece while the next is gathered.
  while (left_bytes > 0) {
    RIDGELINE_ASSIGN_OR_RETURN(const absl::Span<char> piece, staging_.Take(left_bytes));
    GatherCopy(cursor.Take(static_cast<std::int64_t>(piece.size())), piece.data(), copy_executor_);
    RIDGELINE_RETURN_IF_ERROR(RIDGELINE_CUDA_CALL(context_, cudaMemcpyAsync, destination, piece.data(), piece.size(),
                                                  cudaMemcpyHostToDevice, stream_.get()));
    destination += piece.size();
    left_bytes -= static_cast<std::int64_t>(piece.size());
  }
  return absl::OkStatus();
}

}  // namespace ridgeline::device
