// The device behind the daemon: one interface, free of CUDA headers; CpuDevice implements it over host memory and a thread
// pool.
//
//   engine ──queue──► Lane 0: upload │ kernel │ download │ OnComplete ─┐
//          ──queue──► Lane 1: upload │ kernel │ download │ OnComplete ─┼──► callbacks, on a thread of the device's
//          ──queue──► Lane n: ...                                     ─┘
//
// A lane is an in-order queue (a CUDA stream, or a worker thread); lanes run side by side. Every call that takes work only
// queues it and returns; nothing here waits for the device.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/common/data_type.h"
#include "kernels/fused/fused.h"
#include "kernels/kv_cache/kv_cache.h"
#include "kernels/microbench/workload.h"
#include "server/device/buffer.h"
#include "server/device/memory_snapshot.h"
#include "server/device/memory_stats.h"

namespace ridgeline::device {

enum class DeviceType { kCpu, kCuda };

// What the hardware says of itself; 0 = it does not say.
struct DeviceInfo {
  std::string name;  // product name, e.g. "AMD EPYC 9655"
  DeviceType type;
  std::string instruction_set;          // what the kernels chose at run time
  int compute_units = 0;                // worker threads or SMs
  std::int64_t memory_bytes = 0;        // of the device
  std::int64_t memory_limit_bytes = 0;  // hard budget of the allocator
  std::int64_t l1_cache_bytes = 0;      // data caches, of one compute unit
  std::int64_t l2_cache_bytes = 0;      // of one core of a CPU; of the whole GPU, whose last level it is
  std::int64_t l3_cache_bytes = 0;      // shared
  double theoretical_bytes_per_second = 0;
  double theoretical_float32_flops_per_second = 0;
  double theoretical_float16_flops_per_second = 0;
  double theoretical_bfloat16_flops_per_second = 0;
};

// What a GPU's monitoring (NVML) says at this moment; what it does not say is empty.
struct GpuStatus {
  std::string uuid;
  std::string driver_version;
  std::optional<int> sm_clock_mhz;
  std::optional<int> memory_clock_mhz;
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<int> temperature_celsius;
  std::optional<std::int64_t> corrected_ecc_errors;          // since the driver was loaded
  std::optional<std::int64_t> uncorrected_ecc_errors;        // likewise
  std::optional<std::vector<std::string>> throttle_reasons;  // of kThrottleReasons; none: the clocks are not held down
  std::optional<double> utilization;                         // [0, 1], of the driver's last sample; of all processes
  std::optional<std::int64_t> xid_errors;                    // since this process began to watch
  std::optional<std::int64_t> last_xid;                      // of those
};

// Why a GPU's clocks may be held down, under the names that nvidia-smi and NVML give.
inline constexpr const char* kThrottleReasons[] = {"applications_clocks_setting",
                                                   "sw_power_cap",
                                                   "hw_slowdown",
                                                   "sync_boost",
                                                   "sw_thermal_slowdown",
                                                   "hw_thermal_slowdown",
                                                   "hw_power_brake_slowdown",
                                                   "display_clock_setting"};

// How the host memory of a copy is known to the device. The CPU device's kinds are all alike.
enum class HostMemoryKind {
  kPageable,    // as any program has it: copies go through memory of the driver's
  kPinned,      // taken from the driver, which keeps it in its place
  kRegistered,  // as any program has it, then given to the driver to keep in its place
};

// Set when nobody wants the result of queued work any more. Shared between the engine, which sets it, and the device, which may
// then skip or cut short the work; completion still comes.
using CancelToken = std::shared_ptr<std::atomic<bool>>;

// A point in a lane's queue whose time can be read once the work before it has completed.
class Event {
 public:
  virtual ~Event() = default;

  // Device time from `earlier` (of the same lane) to this event. Both must have completed.
  virtual absl::Duration Since(const Event& earlier) const = 0;
};

// Benchmarks' kernels that a device took once and can run again at the cost of one launch.
class Graph {
 public:
  virtual ~Graph() = default;
};

// Allocators that a device has beside its own, for measuring.
enum class PlainAllocator {
  kDeviceMalloc,  // CUDA: cudaMalloc and cudaFree, which waits for the device
  kStreamOrdered  // CUDA: cudaMallocAsync and cudaFreeAsync, on the lane's stream
};

// A part of a kernel's time: from the end of the phase before, or the start of the kernel, until `end`.
struct KernelPhase {
  const char* name;  // static
  std::shared_ptr<const Event> end;
};

// Callable from one thread at a time. Errors: RESOURCE_EXHAUSTED (reason OUT_OF_MEMORY, saying requested, allocated, reserved,
// limit) from calls that allocate; UNAVAILABLE (reason DEVICE_FAILED) once the device is lost. After an error nothing of that
// call is queued, and what was queued before still runs. What is queued starts at the latest at the next OnComplete.
class Lane {
 public:
  virtual ~Lane() = default;

  // Uninitialised memory for this lane's work. 0 bytes: an empty buffer.
  virtual absl::StatusOr<Buffer> Allocate(std::int64_t size_bytes) = 0;

  // Promises device memory to what is allocated on this lane until EndReservation: other lanes can't take it. `owner`, which
  // may be null, is whom the lane's memory is for from now on. Errors: RESOURCE_EXHAUSTED if that much is not free; there is no
  // promise then.
  virtual absl::Status Reserve(std::int64_t size_bytes, std::shared_ptr<const MemoryOwner> owner) = 0;
  virtual void EndReservation() = 0;

  // A new buffer with the slices' bytes, one after the other. `owner` keeps the slices alive until they have been read.
  virtual absl::StatusOr<Buffer> Upload(absl::Span<const HostSlice> slices, std::shared_ptr<const void> owner) = 0;

  // A new buffer of normally distributed elements; see kernels/microbench/microbench.h, FillNormalOnCpu.
  virtual absl::StatusOr<Buffer> UploadRandom(kernels::DataType type, std::int64_t elements, std::uint64_t seed, float mean,
                                              float standard_deviation) = 0;

  // Attention over device memory; `params` is copied, what it points to must live until completion. `sequences` is
  // params.sequences in host memory, read before this returns. `cancel` may be null. The result has the phases of a kernel
  // that consists of several, else nothing.
  virtual absl::StatusOr<std::vector<KernelPhase>> Attend(const kernels::attention::AttentionPlan& plan,
                                                          const kernels::attention::AttentionParams& params,
                                                          absl::Span<const kernels::attention::Sequence> sequences,
                                                          CancelToken cancel) = 0;

  // A fused operation over device memory, in one kernel or a kernel a step; `params` is copied, what it points to must live
  // until completion. `cancel` may be null; with kRopeAppend it is, since half of an append is none.
  virtual absl::Status Fuse(const kernels::fused::FusedParams& params, kernels::fused::Mode mode, CancelToken cancel) = 0;

  // Hands the buffer's bytes to the host: readable once the lane has completed. The CPU device moves no byte.
  virtual absl::StatusOr<std::shared_ptr<const HostBuffer>> Download(Buffer buffer) = 0;

  // Tokens to and from the pages of a KV cache, and whole pages to others. `params` is copied, what it points to must live
  // until completion. Lanes don't wait for each other: whoever has two lanes touch one page orders them.
  virtual absl::Status AppendKeyValue(const kernels::kv_cache::AppendParams& params) = 0;
  virtual absl::Status GatherKeyValue(const kernels::kv_cache::GatherParams& params) = 0;
  virtual absl::Status CopyPages(const kernels::kv_cache::CopyPagesParams& params) = 0;

  // For measuring: destination = source, both at least size_bytes.
  virtual absl::Status Copy(Buffer& destination, const Buffer& source, std::int64_t size_bytes) = 0;

  // For measuring: the first size_bytes of either, as one copy from or to host memory, which lives until completion.
  virtual absl::Status CopyFromHost(Buffer& destination, const void* source, std::int64_t size_bytes) = 0;
  virtual absl::Status CopyToHost(void* destination, const Buffer& source, std::int64_t size_bytes) = 0;

  // For measuring: C[m,n] (float32) = A[m,k] · B[n,k]ᵀ, A and B of `type`.
  virtual absl::Status Gemm(kernels::DataType type, std::int64_t m, std::int64_t n, std::int64_t k, const Buffer& a,
                            const Buffer& b, Buffer& c) = 0;

  // For measuring: one of the benchmarks' kernels. `workload` is copied, what it points to must live until completion. Errors:
  // UNIMPLEMENTED on a device that has no such kernel.
  virtual absl::Status Run(const kernels::microbench::Workload& /*workload*/) {
    return absl::UnimplementedError("this device has no implementation of the benchmarks' kernels");
  }

  // For measuring: the workloads, one after the other, as a graph, and one run of it. The graph lives until completion. Errors:
  // UNIMPLEMENTED on a device that has none.
  virtual absl::StatusOr<std::unique_ptr<Graph>> Capture(std::vector<kernels::microbench::Workload> /*workloads*/) {
    return absl::UnimplementedError("this device has no graphs");
  }
  virtual absl::Status Replay(Graph& /*graph*/) { return absl::UnimplementedError("this device has no graphs"); }

  // For measuring: uninitialised memory from another allocator than the lane's own. Errors: also UNIMPLEMENTED.
  virtual absl::StatusOr<Buffer> AllocatePlain(PlainAllocator /*allocator*/, std::int64_t /*size_bytes*/) {
    return absl::UnimplementedError("this device has no other allocator");
  }

  // For measuring: what is queued between the two starts when all of it has been handed over, so that the device does not wait
  // for the host in between; at the latest after some milliseconds. A device that hands nothing over does nothing here.
  virtual absl::Status Hold() { return absl::OkStatus(); }
  virtual absl::Status Release() { return absl::OkStatus(); }

  // Marks this point of the queue.
  virtual absl::StatusOr<std::unique_ptr<Event>> Record() = 0;

  // Calls `done` exactly once, when all work queued before it has run, been skipped or failed, with the first error among it.
  // On a thread of the device's; `done` must not block. Never fails: on a lost device `done` gets its error.
  virtual void OnComplete(absl::AnyInvocable<void(absl::Status)> done) = 0;
};

class Device {
 public:
  virtual ~Device() = default;  // waits for queued work

  virtual const DeviceInfo& info() const = 0;
  virtual int num_lanes() const = 0;
  virtual Lane& lane(int index) = 0;  // [0, num_lanes())

  // The kernel and its configuration for a problem; pure, cheap. Errors: UNIMPLEMENTED.
  virtual absl::StatusOr<kernels::attention::AttentionPlan> PlanAttention(
      const kernels::attention::AttentionShape& shape, absl::Span<const kernels::attention::Sequence> sequences,
      std::optional<kernels::attention::Algorithm> requested) const = 0;

  // Uninitialised memory that any lane may use, e.g. the arena of a KV cache; to be let go only when all work that uses it is
  // known to have completed. 0 bytes: an empty buffer. Errors as Lane's. Thread-safe, and so are the five below.
  virtual absl::StatusOr<Buffer> Allocate(std::int64_t size_bytes) = 0;

  // For measuring: `size_bytes`, at least 1, of host memory of that kind, uninitialised; goes back with its last owner, when no
  // copy uses it any more. Slow: the system pins each page. Errors as Lane's.
  virtual absl::StatusOr<std::shared_ptr<void>> AllocateHostMemory(HostMemoryKind kind, std::int64_t size_bytes) = 0;

  virtual MemoryStats memory_stats() const = 0;
  virtual void ResetPeakMemoryStats() = 0;
  // Memory that the driver, or the operating system, could give to whoever asks next; nothing if it does not say. Within
  // milliseconds.
  virtual std::optional<std::int64_t> system_free_bytes() const { return std::nullopt; }
  // Gives free memory that no queued work uses back to the system; returns its bytes.
  virtual std::int64_t EmptyMemoryCache() = 0;
  // Of the device's memory: what there is, and how it came to be so.
  virtual MemorySnapshot memory_snapshot() const = 0;
  // Ok while the device works; UNAVAILABLE with the cause once it is lost.
  virtual absl::Status health() const = 0;

  // Calls `listener` once, with the cause, when the device is lost: on whichever thread noticed, or at once if it is lost
  // already. It must not block nor call the device. One listener at most, set while no request runs.
  virtual void OnLost(absl::AnyInvocable<void(const absl::Status&)> /*listener*/) {}

  // Of a GPU whose monitoring answers; thread-safe, within milliseconds.
  virtual std::optional<GpuStatus> gpu_status() const { return std::nullopt; }

  // Host memory that the GPU writes results to (pinned), by an allocator of its own. Nothing on a device that has none.
  virtual std::optional<MemoryStats> pinned_memory_stats() const { return std::nullopt; }
};

}  // namespace ridgeline::device
