// A device that fails when told to, and whose completions can be held: makes errors, overload, cancellation and drain happen
// at a chosen moment. All else is the wrapped device's, its memory statistics too: allocation_count says how many buffers
// live.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "server/device/device.h"
#include "server/device/device_loss.h"

namespace ridgeline::support {

// Counts fallible calls and says which fail. Thread-safe.
class FaultPlan {
 public:
  // The n-th call from now on, counted from 0, fails once with `status`.
  void FailCall(std::int64_t n, absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  // All calls fail from now on.
  void FailAll(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Counts a call; its error if it is to fail.
  absl::Status CountCall() ABSL_LOCKS_EXCLUDED(mutex_);

  std::int64_t num_calls() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status failure_of_all() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable base::Mutex mutex_;
  std::int64_t num_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t failing_call_ ABSL_GUARDED_BY(mutex_) = -1;  // -1 = none
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_of_all_ ABSL_GUARDED_BY(mutex_);
};

// Stops threads while it is shut. Thread-safe.
class Gate {
 public:
  void Shut() ABSL_LOCKS_EXCLUDED(mutex_);
  void Open() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits while the gate is shut.
  void Pass() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until a thread waits in Pass.
  void AwaitHeld() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;
  int num_held_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Fallible calls, over the device and all lanes in the order in which they are made: Allocate, Upload, UploadRandom, Attend,
// Fuse, Download, AppendKeyValue, GatherKeyValue, CopyPages, Copy, CopyFromHost, CopyToHost, Gemm, Run, Record,
// AllocateHostMemory, and OnComplete, whose callback gets the error.
class FlakyDevice final : public device::Device {
 public:
  explicit FlakyDevice(std::unique_ptr<device::Device> device);
  ~FlakyDevice() override;  // lets go what is held

  void FailCall(std::int64_t n, absl::Status status) { faults_.FailCall(n, std::move(status)); }
  std::int64_t num_calls() const { return faults_.num_calls(); }

  // The device is lost: health() says so, its listener is told, and every fallible call fails.
  void Lose(const absl::Status& cause);

  // Completions on that lane, and all work behind them, wait until released.
  void HoldCompletions(int lane) { gates_[lane].Shut(); }
  void ReleaseCompletions(int lane) { gates_[lane].Open(); }
  // Waits until a completion on that lane is held: the work before it has run.
  void AwaitHeldCompletion(int lane) { gates_[lane].AwaitHeld(); }

  const device::DeviceInfo& info() const override { return device_->info(); }
  int num_lanes() const override { return device_->num_lanes(); }
  device::Lane& lane(int index) override { return *lanes_[index]; }
  absl::StatusOr<kernels::attention::AttentionPlan> PlanAttention(
      const kernels::attention::AttentionShape& shape, absl::Span<const kernels::attention::Sequence> sequences,
      std::optional<kernels::attention::Algorithm> requested) const override {
    return device_->PlanAttention(shape, sequences, requested);
  }
  absl::StatusOr<device::Buffer> Allocate(std::int64_t size_bytes) override;
  absl::StatusOr<std::shared_ptr<void>> AllocateHostMemory(device::HostMemoryKind kind, std::int64_t size_bytes) override;
  device::MemoryStats memory_stats() const override { return device_->memory_stats(); }
  void ResetPeakMemoryStats() override { device_->ResetPeakMemoryStats(); }
  std::optional<std::int64_t> system_free_bytes() const override { return device_->system_free_bytes(); }
  std::int64_t EmptyMemoryCache() override { return device_->EmptyMemoryCache(); }
  device::MemorySnapshot memory_snapshot() const override { return device_->memory_snapshot(); }
  absl::Status health() const override;
  void OnLost(absl::AnyInvocable<void(const absl::Status&)> listener) override { loss_.OnLost(std::move(listener)); }
  std::optional<device::GpuStatus> gpu_status() const override { return device_->gpu_status(); }
  std::optional<device::MemoryStats> pinned_memory_stats() const override { return device_->pinned_memory_stats(); }

 private:
  FaultPlan faults_;
  device::DeviceLoss loss_;
  std::vector<Gate> gates_;  // [num_lanes]
  std::vector<std::unique_ptr<device::Lane>> lanes_;
  std::unique_ptr<device::Device> device_;  // last: what it still runs uses the others
};

}  // namespace ridgeline::support
