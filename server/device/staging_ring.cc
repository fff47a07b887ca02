#include "server/device/staging_ring.h"

#include <algorithm>

#include "server/base/status_macros.h"

namespace ridgeline::device {
namespace {

constexpr std::int64_t kAlignmentBytes = 256;

// A rest of a slot shorter than this is left unused rather than split off a larger upload: each copy has a fixed cost.
constexpr std::int64_t kSmallestPieceBytes = std::int64_t{256} << 10;

}  // namespace

absl::StatusOr<StagingRing> StagingRing::Create(CudaContext& context, MemorySource& pinned_memory, cudaStream_t stream) {
  RIDGELINE_ASSIGN_OR_RETURN(Segment memory, Segment::Map(pinned_memory, kNumSlots * kSlotBytes));
  std::vector<Slot> slots;
  for (int i = 0; i < kNumSlots; ++i) {
    RIDGELINE_ASSIGN_OR_RETURN(CudaEvent read, CudaEvent::Create(context));
    slots.push_back({.read = std::move(read)});
  }
  return StagingRing(context, stream, std::move(memory), std::move(slots));
}

absl::StatusOr<absl::Span<char>> StagingRing::Take(std::int64_t wanted_bytes) {
  if (kSlotBytes - used_bytes_ < std::min(wanted_bytes, kSmallestPieceBytes)) RIDGELINE_RETURN_IF_ERROR(Advance());
  const std::int64_t taken_bytes = std::min(wanted_bytes, kSlotBytes - used_bytes_);
  char* const data = static_cast<char*>(memory_.data()) + current_ * kSlotBytes + used_bytes_;
  used_bytes_ += (taken_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  return absl::MakeSpan(data, taken_bytes);
}

absl::Status StagingRing::Advance() {
  // After a failure the current slot stays: nothing is overwritten that may still be read.
  Slot& filled = slots_[current_];
  RIDGELINE_RETURN_IF_ERROR(RIDGELINE_CUDA_CALL(context_, cudaEventRecord, filled.read.get(), stream_));
  filled.is_pending = true;
  const int next = (current_ + 1) % kNumSlots;
  if (slots_[next].is_pending) {
    RIDGELINE_RETURN_IF_ERROR(RIDGELINE_CUDA_CALL(context_, cudaEventSynchronize, slots_[next].read.get()));
    slots_[next].is_pending = false;
  }
  current_ = next;
  used_bytes_ = 0;
  return absl::OkStatus();
}

}  // namespace ridgeline::device
