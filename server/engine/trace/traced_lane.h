// A lane that marks, by device events, when each copy and kernel on it ended. What is queued through it is what would be queued
// without it, with an event between: it is there for launches that leave while a capture runs, for no others. Not for
// benchmarks, which are never traced: what they alone call keeps Lane's defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/device/device.h"
#include "server/engine/trace/trace_records.h"

namespace ridgeline::engine {

// As its lane: one thread at a time. Outlives what is queued through it.
class TracedLane final : public device::Lane {
 public:
  explicit TracedLane(device::Lane& lane) : lane_(lane) {}

  // Once all has completed without an error.
  std::vector<DeviceSpan> Spans() const;

  absl::StatusOr<device::Buffer> Allocate(std::int64_t size_bytes) override { return lane_.Allocate(size_bytes); }
  absl::Status Reserve(std::int64_t size_bytes, std::shared_ptr<const device::MemoryOwner> owner) override {
    return lane_.Reserve(size_bytes, std::move(owner));
  }
  void EndReservation() override { lane_.EndReservation(); }
  absl::StatusOr<device::Buffer> Upload(absl::Span<const device::HostSlice> slices, std::shared_ptr<const void> owner) override;
  absl::StatusOr<device::Buffer> UploadRandom(kernels::DataType type, std::int64_t elements, std::uint64_t seed, float mean,
                                              float standard_deviation) override;
  absl::StatusOr<std::vector<device::KernelPhase>> Attend(const kernels::attention::AttentionPlan& plan,
                                                          const kernels::attention::AttentionParams& params,
                                                          absl::Span<const kernels::attention::Sequence> sequences,
                                                          device::CancelToken cancel) override;
  absl::Status Fuse(const kernels::fused::FusedParams& params, kernels::fused::Mode mode, device::CancelToken cancel) override;
  absl::StatusOr<std::shared_ptr<const device::HostBuffer>> Download(device::Buffer buffer) override;
  absl::Status AppendKeyValue(const kernels::kv_cache::AppendParams& params) override;
  absl::Status GatherKeyValue(const kernels::kv_cache::GatherParams& params) override;
  absl::Status CopyPages(const kernels::kv_cache::CopyPagesParams& params) override;
  absl::Status Copy(device::Buffer& destination, const device::Buffer& source, std::int64_t size_bytes) override;
  absl::Status CopyFromHost(device::Buffer& destination, const void* source, std::int64_t size_bytes) override;
  absl::Status CopyToHost(void* destination, const device::Buffer& source, std::int64_t size_bytes) override;
  absl::Status Gemm(kernels::DataType type, std::int64_t m, std::int64_t n, std::int64_t k, const device::Buffer& a,
                    const device::Buffer& b, device::Buffer& c) override;
  absl::StatusOr<std::unique_ptr<device::Event>> Record() override { return lane_.Record(); }
  void OnComplete(absl::AnyInvocable<void(absl::Status)> done) override { lane_.OnComplete(std::move(done)); }

 private:
  struct Mark {
    SpanKind kind;
    std::string name;
    std::int64_t bytes;
    std::unique_ptr<device::Event> end;
    std::vector<device::KernelPhase> phases;
  };

  // Marks where the first span begins.
  void NoteBegin();
  // Marks the end of what was queued last. A device that has no event to give leaves the span out.
  void NoteEnd(SpanKind kind, std::string name, std::int64_t bytes = 0, std::vector<device::KernelPhase> phases = {});

  device::Lane& lane_;
  std::unique_ptr<device::Event> begin_;
  std::vector<Mark> marks_;
};

}  // namespace ridgeline::engine
