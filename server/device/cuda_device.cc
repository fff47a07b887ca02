#include "server/device/cuda_device.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/attention/decode/decode_plan_cuda.h"
#include "server/base/error.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/device/caching_allocator.h"
#include "server/device/check_range.h"
#include "server/device/completion_queue.h"
#include "server/device/cpu_info.h"
#include "server/device/cublas_library.h"
#include "server/device/cuda_context.h"
#include "server/device/cuda_host_memory.h"
#include "server/device/cuda_info.h"
#include "server/device/cuda_lane.h"
#include "server/device/cuda_memory.h"
#include "server/device/lane_progress.h"
#include "server/device/nvml.h"
#include "server/device/thread_pool.h"

namespace ridgeline::device {
namespace {

using kernels::attention::Algorithm;
using kernels::attention::AttentionPlan;
using kernels::attention::AttentionShape;
using kernels::attention::Sequence;

constexpr int kMaxLanes = 1024;
constexpr int kMaxThreads = 4096;
constexpr int kLeastComputeCapability = 80;

// A few threads saturate a host's memory; the others have requests to parse.
constexpr int kMostCopyThreads = 8;

// What cuBLAS' documentation of cublasSetWorkspace asks for: 32 MiB on Hopper and newer, 4 MiB before.
std::int64_t CublasWorkspaceBytes(int compute_capability) {
  return (compute_capability >= 90 ? 32 : 4) * (std::int64_t{1} << 20);
}

// Kept free for what CUDA loads when it is first used, and for a neighbour's context.
constexpr std::int64_t kReserveBytes = std::int64_t{1} << 30;

absl::Status CheckOptions(const CudaDeviceOptions& options) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  RIDGELINE_RETURN_IF_ERROR(CheckRange("ordinal", options.ordinal, 0, std::numeric_limits<int>::max()));
  RIDGELINE_RETURN_IF_ERROR(CheckRange("num_lanes", options.num_lanes, 1, kMaxLanes));
  RIDGELINE_RETURN_IF_ERROR(CheckRange("num_copy_threads", options.num_copy_threads, 0, kMaxThreads));
  RIDGELINE_RETURN_IF_ERROR(CheckRange("memory_limit_bytes", options.memory_limit_bytes, 0, kMost));
  return CheckRange("pinned_limit_bytes", options.pinned_limit_bytes, 0, kMost);
}

// There is a driver that can run this build's code, and it has a device of that number.
absl::Status CheckDeviceExists(int ordinal) {
  int driver_version = 0;
  if (cudaDriverGetVersion(&driver_version) != cudaSuccess || driver_version == 0) {
    return absl::FailedPreconditionError("this machine has no NVIDIA driver");
  }
  int num_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error != cudaSuccess && error != cudaErrorNoDevice) {
    return absl::FailedPreconditionError(
        absl::StrCat("no GPU can be used: ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")"));
  }
  if (num_devices == 0) return absl::FailedPreconditionError("this machine has no GPU that CUDA can use");
  if (ordinal < num_devices) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("there is no GPU ", ordinal, "; CUDA sees ", num_devices, ", counted from 0"));
}

absl::Status CheckComputeCapability(const CudaInfo& info) {
  if (info.limits.compute_capability >= kLeastComputeCapability) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(info.device.name, " is ", info.device.instruction_set, "; sm_",
                                                    kLeastComputeCapability, " (Ampere) or newer is needed"));
}

absl::StatusOr<std::int64_t> FreeBytes(CudaContext& context) {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  RIDGELINE_RETURN_IF_ERROR(RIDGELINE_CUDA_CALL(context, cudaMemGetInfo, &free_bytes, &total_bytes));
  return static_cast<std::int64_t>(free_bytes);
}

absl::StatusOr<std::int64_t> MemoryLimitBytes(CudaContext& context, std::int64_t wanted_bytes) {
  if (wanted_bytes > 0) return wanted_bytes;
  RIDGELINE_ASSIGN_OR_RETURN(const std::int64_t free, FreeBytes(context));
  return std::max({free - kReserveBytes, free / 2, kSegmentAlignmentBytes});
}

std::unique_ptr<Nvml> TryNvml(const std::string& pci_bus_id) {
  absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Create(pci_bus_id);
  if (nvml.ok()) return *std::move(nvml);
  base::Log(base::LogLevel::kInfo, "no monitoring of the GPU", {{"reason", nvml.status().message()}});
  return nullptr;
}

// What a device is made of, found out or made before it.
struct Parts {
  std::unique_ptr<CudaContext> context;
  CudaInfo info;
  kernels::CublasFunctions cublas;
  std::unique_ptr<ThreadPool> copy_threads;
  std::unique_ptr<Nvml> nvml;  // may be null
  std::int64_t pinned_limit_bytes;
  AllocatorOptions allocator;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(Parts parts, int num_lanes)
      : parts_(std::move(parts)),
        device_memory_(*parts_.context),
        pinned_memory_(*parts_.context),
        progress_(num_lanes + 1),
        device_allocator_(device_memory_, parts_.info.device.memory_limit_bytes, progress_, parts_.allocator),
        pinned_allocator_(pinned_memory_, parts_.pinned_limit_bytes, progress_, {.history_events = 0}, "pinned host memory") {}

  absl::Status Start() {
    RIDGELINE_ASSIGN_OR_RETURN(completions_,
                               CompletionQueue::Create(*parts_.context, absl::MakeSpan(progress_).first(SharedPool())));
    const kernels::fused::CudaLimits fused_limits = {.compute_capability = parts_.info.limits.compute_capability,
                                                     .num_sms = parts_.info.limits.num_sms};
    const CudaLaneParts lane_parts = {.context = *parts_.context,
                                      .device_memory = device_memory_,
                                      .pinned_memory = pinned_memory_,
                                      .device_allocator = device_allocator_,
                                      .pinned_allocator = pinned_allocator_,
                                      .copy_threads = *parts_.copy_threads,
                                      .completions = *completions_,
                                      .cublas = parts_.cublas,
                                      .cublas_workspace_bytes = CublasWorkspaceBytes(parts_.info.limits.compute_capability),
                                      .fused_limits = fused_limits,
                                      .merge_workspace_bytes = kernels::attention::MostMergeWorkspaceBytes(parts_.info.limits)};
    for (int lane_idx = 0; lane_idx < SharedPool(); ++lane_idx) {
      RIDGELINE_ASSIGN_OR_RETURN(auto lane, CudaLane::Create(lane_idx, lane_parts, progress_[lane_idx]));
      lanes_.push_back(std::move(lane));
    }
    return absl::OkStatus();
  }

  const DeviceInfo& info() const override { return parts_.info.device; }
  int num_lanes() const override { return static_cast<int>(lanes_.size()); }
  Lane& lane(int index) override { return *lanes_[index]; }

  absl::StatusOr<AttentionPlan> PlanAttention(const AttentionShape& shape, absl::Span<const Sequence> sequences,
                                              std::optional<Algorithm> requested) const override {
    const std::string why_not = kernels::attention::WhyNotOnCuda(shape, sequences.data());
    if (!why_not.empty()) {
      return base::WithReason(absl::UnimplementedError(why_not), base::kReasonUnsupported);
    }
    return kernels::attention::PlanOnCuda(shape, sequences.data(), requested, parts_.info.limits);
  }

  absl::StatusOr<Buffer> Allocate(std::int64_t size_bytes) override {
    RIDGELINE_RETURN_IF_ERROR(health());
    return device_allocator_.Allocate(SharedPool(), size_bytes);
  }

  absl::StatusOr<std::shared_ptr<void>> AllocateHostMemory(HostMemoryKind kind, std::int64_t size_bytes) override {
    if (size_bytes > parts_.pinned_limit_bytes) {
      const absl::Status refusal = absl::ResourceExhaustedError(
          absl::StrCat("out of host memory: ", size_bytes, " bytes requested, the limit is ", parts_.pinned_limit_bytes));
      return base::WithReason(refusal, base::kReasonOutOfMemory);
    }
    return AllocateCudaHostMemory(*parts_.context, kind, size_bytes);
  }

  MemoryStats memory_stats() const override { return device_allocator_.stats(); }
  std::optional<MemoryStats> pinned_memory_stats() const override { return pinned_allocator_.stats(); }
  void ResetPeakMemoryStats() override {
    device_allocator_.ResetPeaks();
    pinned_allocator_.ResetPeaks();
  }
  std::optional<std::int64_t> system_free_bytes() const override {
    const absl::StatusOr<std::int64_t> free_bytes = FreeBytes(*parts_.context);
    return free_bytes.ok() ? std::optional(*free_bytes) : std::nullopt;
  }
  std::int64_t EmptyMemoryCache() override { return device_allocator_.EmptyCache() + pinned_allocator_.EmptyCache(); }

  MemorySnapshot memory_snapshot() const override { return device_allocator_.snapshot(); }
  absl::Status health() const override { return parts_.context->loss().status(); }
  void OnLost(absl::AnyInvocable<void(const absl::Status&)> listener) override {
    parts_.context->loss().OnLost(std::move(listener));
  }

  std::optional<GpuStatus> gpu_status() const override {
    if (parts_.nvml == nullptr) return std::nullopt;
    return parts_.nvml->Read();
  }

 private:
  // The allocator's place for what any lane may use: as if of one more lane, on which no work is ever queued.
  int SharedPool() const { return static_cast<int>(progress_.size()) - 1; }

  const Parts parts_;
  CudaMemory device_memory_;
  PinnedMemory pinned_memory_;
  std::vector<LaneProgress> progress_;  // [num_lanes + 1]
  CachingAllocator device_allocator_;
  CachingAllocator pinned_allocator_;
  std::unique_ptr<CompletionQueue> completions_;
  std::vector<std::unique_ptr<CudaLane>> lanes_;  // last: their destructors wait for what is queued
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaDeviceOptions& options) {
  RIDGELINE_RETURN_IF_ERROR(CheckOptions(options));
  RIDGELINE_RETURN_IF_ERROR(CheckDeviceExists(options.ordinal));
  Parts parts;
  parts.context = std::make_unique<CudaContext>(options.ordinal, options.inject_error);
  RIDGELINE_ASSIGN_OR_RETURN(parts.info, ReadCudaInfo(*parts.context));
  RIDGELINE_RETURN_IF_ERROR(CheckComputeCapability(parts.info));
  RIDGELINE_ASSIGN_OR_RETURN(parts.cublas, LoadCublas());
  RIDGELINE_ASSIGN_OR_RETURN(parts.info.device.memory_limit_bytes,
                             MemoryLimitBytes(*parts.context, options.memory_limit_bytes));
  parts.allocator = options.allocator;
  const CpuInfo host = ReadCpuInfo();
  parts.pinned_limit_bytes = options.pinned_limit_bytes > 0 ? options.pinned_limit_bytes : host.memory_bytes / 4;
  const int copy_threads =
      options.num_copy_threads > 0 ? options.num_copy_threads : std::clamp(host.usable_cores / 2, 1, kMostCopyThreads);
  RIDGELINE_ASSIGN_OR_RETURN(parts.copy_threads, ThreadPool::Create(copy_threads));
  parts.nvml = TryNvml(parts.info.pci_bus_id);
  auto device = std::make_unique<CudaDevice>(std::move(parts), options.num_lanes);
  RIDGELINE_RETURN_IF_ERROR(device->Start());
  return device;
}

}  // namespace ridgeline::device
