#include "server/engine/trace/traced_lane.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/fused/op_info.h"
#include "server/base/status_macros.h"

namespace ridgeline::engine {
namespace {

using device::Buffer;
using device::Event;
using device::HostSlice;
using device::KernelPhase;

// Of one launch. What works queue has a dozen at most.
constexpr std::size_t kMaxMarks = 1024;

}  // namespace

void TracedLane::NoteBegin() {
  if (begin_ != nullptr) return;
  absl::StatusOr<std::unique_ptr<Event>> event = lane_.Record();
  if (event.ok()) begin_ = *std::move(event);
}

void TracedLane::NoteEnd(SpanKind kind, std::string name, std::int64_t bytes, std::vector<KernelPhase> phases) {
  if (begin_ == nullptr || marks_.size() >= kMaxMarks) return;
  absl::StatusOr<std::unique_ptr<Event>> event = lane_.Record();
  if (event.ok()) marks_.push_back({kind, std::move(name), bytes, *std::move(event), std::move(phases)});
}

std::vector<DeviceSpan> TracedLane::Spans() const {
  std::vector<DeviceSpan> spans;
  if (marks_.empty()) return spans;
  // All from one end: times between other pairs are rounded each by itself, and spans would overlap.
  const auto before_end = [&last = *marks_.back().end](const Event& event) { return last.Since(event); };
  absl::Duration begin = before_end(*begin_);
  for (const Mark& mark : marks_) {
    const absl::Duration end = before_end(*mark.end);
    spans.push_back({mark.kind, mark.name, begin, begin - end, mark.bytes});
    absl::Duration phase_begin = begin;
    for (const KernelPhase& phase : mark.phases) {
      const absl::Duration phase_end = before_end(*phase.end);
      spans.push_back({mark.kind, phase.name, phase_begin, phase_begin - phase_end});
      phase_begin = phase_end;
    }
    begin = end;
  }
  return spans;
}

absl::StatusOr<Buffer> TracedLane::Upload(absl::Span<const HostSlice> slices, std::shared_ptr<const void> owner) {
  NoteBegin();
  RIDGELINE_ASSIGN_OR_RETURN(Buffer buffer, lane_.Upload(slices, std::move(owner)));
  NoteEnd(SpanKind::kCopy, "upload", buffer.size_bytes());
  return buffer;
}

absl::StatusOr<Buffer> TracedLane::UploadRandom(kernels::DataType type, std::int64_t elements, std::uint64_t seed, float mean,
                                                float standard_deviation) {
  NoteBegin();
  RIDGELINE_ASSIGN_OR_RETURN(Buffer buffer, lane_.UploadRandom(type, elements, seed, mean, standard_deviation));
  NoteEnd(SpanKind::kKernel, "fill_normal");
  return buffer;
}

absl::StatusOr<std::vector<KernelPhase>> TracedLane::Attend(const kernels::attention::AttentionPlan& plan,
                                                            const kernels::attention::AttentionParams& params,
                                                            absl::Span<const kernels::attention::Sequence> sequences,
                                                            device::CancelToken cancel) {
  NoteBegin();
  RIDGELINE_ASSIGN_OR_RETURN(std::vector<KernelPhase> phases, lane_.Attend(plan, params, sequences, std::move(cancel)));
  NoteEnd(SpanKind::kKernel, plan.kernel, /*bytes=*/0, phases);
  return phases;
}

absl::Status TracedLane::Fuse(const kernels::fused::FusedParams& params, kernels::fused::Mode mode,
                              device::CancelToken cancel) {
  NoteBegin();
  RIDGELINE_RETURN_IF_ERROR(lane_.Fuse(params, mode, std::move(cancel)));
  NoteEnd(SpanKind::kKernel, absl::StrCat(kernels::fused::Name(params.shape.op), "_", kernels::fused::Name(mode)));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const device::HostBuffer>> TracedLane::Download(Buffer buffer) {
  NoteBegin();
  const std::int64_t bytes = buffer.size_bytes();
  RIDGELINE_ASSIGN_OR_RETURN(auto host, lane_.Download(std::move(buffer)));
  NoteEnd(SpanKind::kCopy, "download", bytes);
  return host;
}

absl::Status TracedLane::AppendKeyValue(const kernels::kv_cache::AppendParams& params) {
  NoteBegin();
  RIDGELINE_RETURN_IF_ERROR(lane_.AppendKeyValue(params));
  NoteEnd(SpanKind::kKernel, "append_key_value");
  return absl::OkStatus();
}

absl::Status TracedLane::GatherKeyValue(const kernels::kv_cache::GatherParams& params) {
  NoteBegin();
  RIDGELINE_RETURN_IF_ERROR(lane_.GatherKeyValue(params));
  NoteEnd(SpanKind::kKernel, "gather_key_value");
  return absl::OkStatus();
}

absl::Status TracedLane::CopyPages(const kernels::kv_cache::CopyPagesParams& params) {
  NoteBegin();
  RIDGELINE_RETURN_IF_ERROR(lane_.CopyPages(params));
  NoteEnd(SpanKind::kKernel, "copy_pages");
  return absl::OkStatus();
}

absl::Status TracedLane::Copy(Buffer& destination, const Buffer& source, std::int64_t size_bytes) {
  NoteBegin();
  RIDGELINE_RETURN_IF_ERROR(lane_.Copy(destination, source, size_bytes));
  NoteEnd(SpanKind::kKernel, "copy");
  return absl::OkStatus();
}

absl::Status TracedLane::CopyFromHost(Buffer& destination, const void* source, std::int64_t size_bytes) {
  NoteBegin();
  RIDGELINE_RETURN_IF_ERROR(lane_.CopyFromHost(destination, source, size_bytes));
  NoteEnd(SpanKind::kCopy, "copy_from_host", size_bytes);
  return absl::OkStatus();
}

absl::Status TracedLane::CopyToHost(void* destination, const Buffer& source, std::int64_t size_bytes) {
  NoteBegin();
  RIDGELINE_RETURN_IF_ERROR(lane_.CopyToHost(destination, source, size_bytes));
  NoteEnd(SpanKind::kCopy, "copy_to_host", size_bytes);
  return absl::OkStatus();
}

absl::Status TracedLane::Gemm(kernels::DataType type, std::int64_t m, std::int64_t n, std::int64_t k, const Buffer& a,
                              const Buffer& b, Buffer& c) {
  NoteBegin();
  RIDGELINE_RETURN_IF_ERROR(lane_.Gemm(type, m, n, k, a, b, c));
  NoteEnd(SpanKind::kKernel, "gemm");
  return absl::OkStatus();
}

}  // namespace ridgeline::engine
