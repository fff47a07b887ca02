#include "server/device/cpu_device.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/simd_target.h"
#include "server/base/status_macros.h"
#include "server/device/caching_allocator.h"
#include "server/device/check_range.h"
#include "server/device/cpu_info.h"
#include "server/device/cpu_lane.h"
#include "server/device/host_memory.h"
#include "server/device/lane_progress.h"
#include "server/device/thread_pool.h"

namespace ridgeline::device {
namespace {

using kernels::attention::Algorithm;
using kernels::attention::AttentionPlan;
using kernels::attention::AttentionShape;
using kernels::attention::CpuLimits;
using kernels::attention::Sequence;

constexpr int kMaxLanes = 1024;
constexpr int kMaxThreads = 4096;

absl::Status CheckOptions(const CpuDeviceOptions& options) {
  RIDGELINE_RETURN_IF_ERROR(CheckRange("num_lanes", options.num_lanes, 1, kMaxLanes));
  RIDGELINE_RETURN_IF_ERROR(CheckRange("num_threads", options.num_threads, 0, kMaxThreads));
  if (options.memory_limit_bytes >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("memory_limit_bytes is ", options.memory_limit_bytes, "; must be 0 or more"));
}

absl::Status CheckProducts(kernels::SgemmFunction sgemm) {
  const std::string fault = kernels::CheckSgemm(sgemm);
  if (fault.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("OpenBLAS, with its code for ", kernels::OpenBlasCore(),
                                                    ", computes wrong products on this processor: ", fault,
                                                    "; OPENBLAS_CORETYPE=Haswell in the environment makes it use other code"));
}

// The rate of a core that issues two fused multiply-adds of whole vectors a cycle, as server cores do.
double TheoreticalFlopsPerSecond(const CpuInfo& cpu, int num_threads) {
  return 2 * 2.0 * kernels::SimdFloat32Lanes() * cpu.max_clock_hz * num_threads;
}

DeviceInfo DescribeDevice(const CpuInfo& cpu, int num_threads, std::int64_t memory_limit_bytes) {
  const double flops_per_second = TheoreticalFlopsPerSecond(cpu, num_threads);
  return {.name = cpu.name,
          .type = DeviceType::kCpu,
          .instruction_set = kernels::SimdTargetName(),
          .compute_units = num_threads,
          .memory_bytes = cpu.memory_bytes,
          .memory_limit_bytes = memory_limit_bytes,
          .l1_cache_bytes = cpu.l1_cache_bytes,
          .l2_cache_bytes = cpu.l2_cache_bytes,
          .l3_cache_bytes = cpu.l3_cache_bytes,
          .theoretical_bytes_per_second = 0,  // the system doesn't tell its memory channels
          .theoretical_float32_flops_per_second = flops_per_second,
          .theoretical_float16_flops_per_second = flops_per_second,  // 16-bit types are multiplied as float32
          .theoretical_bfloat16_flops_per_second = flops_per_second};
}

CpuLimits LimitsOf(const DeviceInfo& info) {
  CpuLimits limits;
  limits.num_slots = info.compute_units;
  if (info.l1_cache_bytes > 0) limits.l1_cache_bytes = info.l1_cache_bytes;
  if (info.l2_cache_bytes > 0) limits.l2_cache_bytes = info.l2_cache_bytes;
  return limits;
}

class CpuDevice final : public Device {
 public:
  CpuDevice(DeviceInfo info, int num_lanes, const AllocatorOptions& allocator, std::unique_ptr<ThreadPool> pool)
      : info_(std::move(info)),
        limits_(LimitsOf(info_)),
        progress_(num_lanes + 1),
        allocator_(memory_, info_.memory_limit_bytes, progress_, allocator),
        pool_(std::move(pool)) {}

  absl::Status StartLanes() {
    for (int lane_idx = 0; lane_idx < SharedPool(); ++lane_idx) {
      RIDGELINE_ASSIGN_OR_RETURN(auto lane, CpuLane::Create(lane_idx, allocator_, *pool_, progress_[lane_idx]));
      lanes_.push_back(std::move(lane));
    }
    return absl::OkStatus();
  }

  const DeviceInfo& info() const override { return info_; }
  int num_lanes() const override { return static_cast<int>(lanes_.size()); }
  Lane& lane(int index) override { return *lanes_[index]; }

  absl::StatusOr<AttentionPlan> PlanAttention(const AttentionShape& shape, absl::Span<const Sequence> sequences,
                                              std::optional<Algorithm> requested) const override {
    return kernels::attention::PlanOnCpu(shape, sequences.data(), requested, limits_);
  }

  absl::StatusOr<Buffer> Allocate(std::int64_t size_bytes) override { return allocator_.Allocate(SharedPool(), size_bytes); }

  absl::StatusOr<std::shared_ptr<void>> AllocateHostMemory(HostMemoryKind /*kind*/, std::int64_t size_bytes) override {
    RIDGELINE_ASSIGN_OR_RETURN(Buffer buffer, allocator_.Allocate(SharedPool(), size_bytes));
    const auto owner = std::make_shared<Buffer>(std::move(buffer));
    return std::shared_ptr<void>(owner, owner->data());
  }

  MemoryStats memory_stats() const override { return allocator_.stats(); }
  void ResetPeakMemoryStats() override { allocator_.ResetPeaks(); }
  std::optional<std::int64_t> system_free_bytes() const override { return ReadAvailableMemoryBytes(); }
  std::int64_t EmptyMemoryCache() override { return allocator_.EmptyCache(); }
  MemorySnapshot memory_snapshot() const override { return allocator_.snapshot(); }
  absl::Status health() const override { return absl::OkStatus(); }

 private:
  // The allocator's place for what any lane may use: as if of one more lane, on which no work is ever queued.
  int SharedPool() const { return static_cast<int>(progress_.size()) - 1; }

  const DeviceInfo info_;
  const CpuLimits limits_;
  HostMemory memory_;
  std::vector<LaneProgress> progress_;  // [num_lanes + 1]
  CachingAllocator allocator_;
  const std::unique_ptr<ThreadPool> pool_;
  std::vector<std::unique_ptr<CpuLane>> lanes_;  // last: their destructors run what is queued
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options) {
  RIDGELINE_RETURN_IF_ERROR(CheckOptions(options));
  RIDGELINE_RETURN_IF_ERROR(CheckProducts(options.sgemm));
  const CpuInfo cpu = ReadCpuInfo();
  const int num_threads = options.num_threads > 0 ? options.num_threads : cpu.usable_cores;
  const std::int64_t memory_limit_bytes =
      options.memory_limit_bytes > 0 ? options.memory_limit_bytes : cpu.memory_bytes / 5 * 4;
  RIDGELINE_ASSIGN_OR_RETURN(auto pool, ThreadPool::Create(num_threads));
  auto device = std::make_unique<CpuDevice>(DescribeDevice(cpu, num_threads, memory_limit_bytes), options.num_lanes,
                                            options.allocator, std::move(pool));
  RIDGELINE_RETURN_IF_ERROR(device->StartLanes());
  return device;
}

}  // namespace ridgeline::device
