#include "tests/support/flaky_device.h"

#include <utility>

#include "server/base/status_macros.h"

namespace ridgeline::support {
namespace {

using device::Buffer;
using device::CancelToken;
using device::Event;
using device::HostBuffer;
using device::HostSlice;
using device::KernelPhase;
using device::Lane;
using kernels::DataType;
using kernels::attention::AttentionParams;
using kernels::attention::AttentionPlan;
using kernels::attention::Sequence;

class FlakyLane final : public Lane {
 public:
  FlakyLane(Lane& lane, FaultPlan& faults, Gate& completions) : lane_(lane), faults_(faults), completions_(completions) {}

  absl::StatusOr<Buffer> Allocate(std::int64_t size_bytes) override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.Allocate(size_bytes);
  }

  absl::Status Reserve(std::int64_t size_bytes, std::shared_ptr<const device::MemoryOwner> owner) override {
    return lane_.Reserve(size_bytes, std::move(owner));
  }
  void EndReservation() override { lane_.EndReservation(); }

  absl::StatusOr<Buffer> Upload(absl::Span<const HostSlice> slices, std::shared_ptr<const void> owner) override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.Upload(slices, std::move(owner));
  }

  absl::StatusOr<Buffer> UploadRandom(DataType type, std::int64_t elements, std::uint64_t seed, float mean,
                                      float standard_deviation) override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.UploadRandom(type, elements, seed, mean, standard_deviation);
  }

  absl::StatusOr<std::vector<KernelPhase>> Attend(const AttentionPlan& plan, const AttentionParams& params,
                                                  absl::Span<const Sequence> sequences, CancelToken cancel) override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.Attend(plan, params, sequences, std::move(cancel));
  }

  absl::Status Fuse(const kernels::fused::FusedParams& params, kernels::fused::Mode mode, CancelToken cancel) override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.Fuse(params, mode, std::move(cancel));
  }

  absl::StatusOr<std::shared_ptr<const HostBuffer>> Download(Buffer buffer) override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.Download(std::move(buffer));
  }

  absl::Status AppendKeyValue(const kernels::kv_cache::AppendParams& params) override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.AppendKeyValue(params);
  }

  absl::Status GatherKeyValue(const kernels::kv_cache::GatherParams& params) override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.GatherKeyValue(params);
  }

  absl::Status CopyPages(const kernels::kv_cache::CopyPagesParams& params) override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.CopyPages(params);
  }

  absl::Status Copy(Buffer& destination, const Buffer& source, std::int64_t size_bytes) override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.Copy(destination, source, size_bytes);
  }

  absl::Status CopyFromHost(Buffer& destination, const void* source, std::int64_t size_bytes) override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.CopyFromHost(destination, source, size_bytes);
  }

  absl::Status CopyToHost(void* destination, const Buffer& source, std::int64_t size_bytes) override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.CopyToHost(destination, source, size_bytes);
  }

  absl::Status Gemm(DataType type, std::int64_t m, std::int64_t n, std::int64_t k, const Buffer& a, const Buffer& b,
                    Buffer& c) override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.Gemm(type, m, n, k, a, b, c);
  }

  absl::Status Run(const kernels::microbench::Workload& workload) override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.Run(workload);
  }

  absl::StatusOr<std::unique_ptr<Event>> Record() override {
    RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
    return lane_.Record();
  }

  void OnComplete(absl::AnyInvocable<void(absl::Status)> done) override {
    lane_.OnComplete([this, fault = faults_.CountCall(), done = std::move(done)](absl::Status status) mutable {
      completions_.Pass();
      status.Update(std::move(fault));
      status.Update(faults_.failure_of_all());  // what is in flight fails too
      done(std::move(status));
    });
  }

 private:
  Lane& lane_;
  FaultPlan& faults_;
  Gate& completions_;
};

}  // namespace

void FaultPlan::FailCall(std::int64_t n, absl::Status status) {
  base::MutexLock lock(&mutex_);
  failing_call_ = num_calls_ + n;
  failure_ = std::move(status);
}

void FaultPlan::FailAll(absl::Status status) {
  base::MutexLock lock(&mutex_);
  failure_of_all_ = std::move(status);
}

absl::Status FaultPlan::CountCall() {
  base::MutexLock lock(&mutex_);
  const bool fails = num_calls_++ == failing_call_;
  return fails ? failure_ : failure_of_all_;
}

std::int64_t FaultPlan::num_calls() const {
  base::MutexLock lock(&mutex_);
  return num_calls_;
}

absl::Status FaultPlan::failure_of_all() const {
  base::MutexLock lock(&mutex_);
  return failure_of_all_;
}

void Gate::Shut() {
  base::MutexLock lock(&mutex_);
  shut_ = true;
}

void Gate::Open() {
  base::MutexLock lock(&mutex_);
  shut_ = false;
  changed_.SignalAll();
}

void Gate::Pass() {
  base::MutexLock lock(&mutex_);
  ++num_held_;
  changed_.SignalAll();
  while (shut_) changed_.Wait(&mutex_);
  --num_held_;
}

void Gate::AwaitHeld() {
  base::MutexLock lock(&mutex_);
  while (num_held_ == 0) changed_.Wait(&mutex_);
}

FlakyDevice::FlakyDevice(std::unique_ptr<device::Device> device) : gates_(device->num_lanes()), device_(std::move(device)) {
  for (int i = 0; i < device_->num_lanes(); ++i) {
    lanes_.push_back(std::make_unique<FlakyLane>(device_->lane(i), faults_, gates_[i]));
  }
}

FlakyDevice::~FlakyDevice() {
  for (Gate& gate : gates_) gate.Open();
}

void FlakyDevice::Lose(const absl::Status& cause) {
  loss_.Lose(cause);
  faults_.FailAll(loss_.status());
}

absl::StatusOr<Buffer> FlakyDevice::Allocate(std::int64_t size_bytes) {
  RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
  return device_->Allocate(size_bytes);
}

absl::StatusOr<std::shared_ptr<void>> FlakyDevice::AllocateHostMemory(device::HostMemoryKind kind, std::int64_t size_bytes) {
  RIDGELINE_RETURN_IF_ERROR(faults_.CountCall());
  return device_->AllocateHostMemory(kind, size_bytes);
}

absl::Status FlakyDevice::health() const {
  absl::Status lost = loss_.status();
  return lost.ok() ? device_->health() : lost;
}

}  // namespace ridgeline::support
